#include "tests/apps/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::test {
namespace {

class DataInspect : public testing::Test {
 protected:
  Outcome inspect(const std::string& bytes, const std::string& options = "") {
    spill(folder_ / "file", bytes);
    std::vector<std::string> words{"data", "inspect", folder_ / "file"};
    for (const std::string& word : words_of(options)) words.push_back(word);
    return lockstep(words);
  }
  TempFolder folder_;
};

TEST_F(DataInspect, ShowsCountsGapsAndCardinalities) {
  const std::string clicks = "label,I1,C1\n1,1,a\n0,,b\n0,x,b\n0,1,b\n";
  const Outcome lines = inspect(clicks);
  EXPECT_EQ(lines.code, 0) << lines.err;
  for (const char* part : {"clicks: label, 1 dense features, 1 categories, comma, header",
                           "samples     3", "positives   1, 33.33 %", "bad rows    1",
                           "line 4: column 2 (I1): expected a number or nothing, got 'x'",
                           "I1                       1    33.33              1"})
    EXPECT_NE(lines.out.find(part), std::string::npos) << part << "\n" << lines.out;
  EXPECT_EQ(lines.err, "");

  const Outcome json = inspect(clicks, "--json");
  EXPECT_EQ(json.code, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["kind"], "clicks");
  EXPECT_EQ(report["samples"], 3);
  EXPECT_EQ(report["positives"], 1);
  EXPECT_EQ(report["bad_rows"]["count"], 1);
  EXPECT_EQ(report["columns"][1]["name"], "C1");
  EXPECT_EQ(report["columns"][1]["distinct"], 2);
}

TEST_F(DataInspect, NamesOfColumnsMayBeHostile) {
  const Outcome json = inspect("label,I\xff\x01,C\"\n1,1,a\n", "--json");
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out)["columns"][0]["name"], "I\\xff\\x01");
}

TEST_F(DataInspect, MistakesAreOneLine) {
  const auto fails = [](const Outcome& outcome, int code, const char* part) {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  fails(inspect(""), 3, "is empty");
  fails(inspect("a\tb\n", "--as clicks"), 3, "expected a header");
  fails(inspect("a\tb\n", "--as xml"), 2, "--as: expected auto, clicks, interactions, text");
  fails(inspect("a\tb\n", "second"), 2, "expected one FILE, got 2");
  fails(lockstep({"data", "inspect"}), 2, "expected one FILE, got 0");
  fails(lockstep({"data", "inspect", folder_ / "none"}), 3, "No such file");
  fails(lockstep({"data", "inspect", folder_.path()}), 3, "Is a directory");
  fails(lockstep({"data", "inspect", "/dev/zero"}), 3, "expected a regular file");
  fails(lockstep({"data"}), 2, "data: expected one of inspect, got nothing");
}

}  // namespace
}  // namespace lockstep::test

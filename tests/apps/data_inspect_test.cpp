#include "tests/apps/program.h"
#include "tests/support/image_bytes.h"

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

TEST_F(DataInspect, ShowsPixelsAndLabelsOfImages) {
  const std::string images = idx_bytes({3, 1, 2}, std::string("\0\xff\0\xff\0\xff", 6));
  const Outcome lines = inspect(images);
  EXPECT_EQ(lines.code, 0) << lines.err;
  for (const char* part : {"kind        idx: images of 1 x 2, 1 channel\n", "samples     3\n",
                           "0                 0.5000      0.5000\n"})
    EXPECT_NE(lines.out.find(part), std::string::npos) << part << "\n" << lines.out;
  const Outcome labels = inspect(idx_bytes({4}, std::string("\2\0\2\2", 4)));
  for (const char* part : {"idx: labels\n", "2                      3       75.00\n"})
    EXPECT_NE(labels.out.find(part), std::string::npos) << part << "\n" << labels.out;

  const Outcome json = inspect(cifar_record(3, 1) + cifar_record(1, 2), "--json");
  EXPECT_EQ(json.code, 0) << json.err;
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["kind"], "cifar10");
  EXPECT_EQ(report["shape"], (std::vector<int>{2, 3, 32, 32}));
  EXPECT_EQ(report["labels"], (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(report["channels"].size(), 3u);
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
  fails(inspect("a\tb\n", "--as xml"), 2,
        "--as: expected auto, clicks, interactions, text, idx, cifar10");
  fails(inspect(idx_bytes({3, 1, 2}, "abcde")), 3, "expected 22 bytes by its header");
  fails(inspect("a\tb\n", "--as idx"), 3, "expected an IDX file");
  fails(inspect("a\tb\n", "--as cifar10"), 3, "expected a multiple of 3073 bytes");
  fails(inspect("a\tb\n", "second"), 2, "expected one FILE, got 2");
  fails(lockstep({"data", "inspect"}), 2, "expected one FILE, got 0");
  fails(lockstep({"data", "inspect", folder_ / "none"}), 3, "No such file");
  fails(lockstep({"data", "inspect", folder_.path()}), 3, "Is a directory");
  fails(lockstep({"data", "inspect", "/dev/zero"}), 3, "expected a regular file");
  fails(lockstep({"data"}), 2, "data: expected one of inspect, got nothing");
}

}  // namespace
}  // namespace lockstep::test

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

/// The command as a user meets it.
namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

Outcome compare(const std::string& rest, const std::string& out) {
  return lockstep(words_of("compare --text synthetic " + rest + " --out " + out));
}

TEST(Compare, ListsClaimsWithTheirRules) {
  const Outcome all = lockstep({"compare", "--list"});
  EXPECT_EQ(all.code, 0);
  EXPECT_NE(all.out.find("B1b   One of 8 cards"), std::string::npos);
  const Outcome one = lockstep({"compare", "--list", "--only", "A2a"});
  EXPECT_EQ(one.out.find("B1b"), std::string::npos);
  EXPECT_NE(one.out.find("Direction: reproduced where"), std::string::npos);
}

TEST(Compare, MistakesAreOneLineAndTheDocumentedCode) {
  const TempFolder folder;
  spill(folder / "other.json", "{\"schema\":1}");
  const std::string missing = folder / "missing.json", other = folder / "other.json";
  for (const auto& [line, code, text] :
       {std::tuple{std::string("--only A2a,B1x"), 2, "B1x"},
        std::tuple{std::string("--quick --full"), 2, "--full"},
        std::tuple{std::string("--seeds -1"), 2, "--seeds"},
        std::tuple{std::string("--only A2a --check ") + missing, 3, "missing.json"},
        std::tuple{std::string("--only A2a --check ") + other, 3, "missing 'claims'"}}) {
    const Outcome outcome = compare(line, folder / "out");
    EXPECT_EQ(outcome.code, code) << line;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(folder / "out")) << line;
  }
}

TEST(Compare, KeepsRunsAndFindsTheSameAgain) {
  const TempFolder folder;
  const std::string out = folder / "out", verdicts = out + "/verdicts.json";
  const Outcome first = compare("--only A4b --quick", out);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("A4b   not reproduced (measured)"), std::string::npos) << first.out;
  EXPECT_NE(slurp(out + "/report.html").find("A4b"), std::string::npos);
  const auto when = fs::last_write_time(out + "/runs");
  const Outcome again = compare("--only A4b --quick --check " + verdicts, out);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(fs::last_write_time(out + "/runs"), when);

  const auto json = nlohmann::json::parse(slurp(verdicts));
  EXPECT_EQ(json["claims"][0]["id"], "A4b");
  EXPECT_EQ(json["claims"][0]["runs"].size(), 10u);
  for (const auto& run : json["claims"][0]["runs"])
    EXPECT_TRUE(fs::exists(out + "/runs/" + run.get<std::string>() + "/metrics.jsonl"));
}

TEST(Compare, ExitsWith7WhereAVerdictOrAFigureHasChanged) {
  const TempFolder folder;
  const std::string out = folder / "out";
  ASSERT_EQ(compare("--only A4b --quick --json", out).code, 0);
  const std::string good = slurp(out + "/verdicts.json");
  const auto after = [&](auto change) {
    auto json = nlohmann::ordered_json::parse(good);
    change(json["claims"][0]);
    spill(folder / "before.json", json.dump());
    return compare("--only A4b --quick --check " + (folder / "before.json"), out);
  };
  const Outcome verdict = after([](auto& c) { c["direction"]["finding"] = "reproduced"; });
  EXPECT_EQ(verdict.code, 7);
  EXPECT_NE(verdict.err.find("A4b: direction was reproduced, is not reproduced"), std::string::npos)
      << verdict.err;
  const Outcome figure = after([](auto& c) { c["figures"][0]["value"] = 100.0; });
  EXPECT_EQ(figure.code, 7);
  EXPECT_NE(figure.err.find("was 100, is 205.4"), std::string::npos) << figure.err;
}

TEST(Compare, ChecksNothingThatTheOtherFileDoesNotTell) {
  const TempFolder folder;
  const std::string out = folder / "out", verdicts = folder / "before.json";
  ASSERT_EQ(compare("--only A2a --quick", out).code, 0);
  spill(verdicts, slurp(out + "/verdicts.json"));
  for (const auto& [more, says] :
       {std::pair{"--only A4b --quick", "expected a verdict about A4b"},
        std::pair{"--only A2a,A4b --quick", "expected a verdict about A4b"},
        std::pair{"--only A2a", "was made with the extent quick; expected default"}}) {
    const Outcome outcome = compare(std::string(more) + " --check " + verdicts, folder / "other");
    EXPECT_EQ(outcome.code, 2) << more;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  }
}

TEST(Compare, ATextThatIsNotThereEndsItBeforeAnythingRuns) {
  const TempFolder folder;
  const Outcome outcome = lockstep(words_of("compare --only A2a --quick --text " +
                                            (folder / "nope.txt") + " --out " + (folder / "out")));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
}

TEST(KnownFaults, O51c_OddDirectoryNamesOfComparisons) {
  const TempFolder folder;
  for (const std::string& name :
       {std::string("a\xff"), std::string("b\nc"), std::string(255, 'd')}) {
    const Outcome outcome = lockstep({"compare", "--text", "synthetic", "--only", "A2a", "--quick",
                                      "--json", "--quiet", "--out", folder / name});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(nlohmann::json::parse(outcome.out),
              nlohmann::json::parse(slurp(folder / name + "/verdicts.json")));
  }
  const Outcome too_long =
      lockstep({"compare", "--only", "A2a", "--quick", "--out", folder / std::string(5000, 'p')});
  EXPECT_EQ(too_long.code, 3);
  EXPECT_EQ(too_long.error_lines(), 1);
}

TEST(Compare, GoesOnAfterCtrlC) {
  const TempFolder folder;
  const std::string out = folder / "out";
  const std::vector<std::string> words =
      words_of("compare --text synthetic --only B0 --quick --jobs 1 --out " + out);
  Process process(words);
  const auto finished = [&] {
    int64_t runs = 0;
    if (fs::exists(out + "/runs"))
      for (const auto& run : fs::directory_iterator(out + "/runs"))
        runs += fs::exists(run.path() / "result.json") ? 1 : 0;
    return runs;
  };
  for (int i = 0; i < 3000 && finished() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  process.signal(SIGINT);
  const Outcome ended = process.wait();
  EXPECT_EQ(ended.code, 130);
  EXPECT_NE(ended.err.find("the same command goes on"), std::string::npos) << ended.err;
  const int64_t kept = finished();
  EXPECT_GE(kept, 3);
  EXPECT_LT(kept, 60);
  EXPECT_FALSE(fs::exists(out + "/verdicts.json"));
  const Outcome rest = lockstep(words);
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(finished(), 60);
  EXPECT_NE(rest.err.find(std::to_string(60 - kept) + "/" + std::to_string(60 - kept)),
            std::string::npos)
      << rest.err;
}

}  // namespace
}  // namespace lockstep::test

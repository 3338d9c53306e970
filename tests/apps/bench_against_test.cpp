#include "tests/apps/program.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

namespace lockstep::test {
namespace {

using nlohmann::json;

/// A "Python" that is a shell script. `answers` is the body of a case statement over the script
/// that it is asked to run; every call is noted.
class FakePython {
 public:
  explicit FakePython(const std::string& answers) {
    spill(path(), "#!/bin/sh\necho \"$(basename \"$1\") $*\" >>" +
                      Process::quoted(folder_ / "calls") +
                      "\nhere=" + Process::quoted(folder_.path()) +
                      "\ncase \"$(basename \"$1\")\" in\n" + answers + "esac\n");
    ::chmod(path().c_str(), 0755);
  }
  std::string path() const { return folder_ / "python"; }
  std::string file(const std::string& name) const { return folder_ / name; }
  std::string calls() const { return slurp(folder_ / "calls"); }

 private:
  TempFolder folder_;
};

constexpr char kVersion[] = "version.py) echo '{\"name\": \"version\", \"torch\": \"9.8.7\"}';;\n";
// 4 ms the first time, 8 ms the second.
constexpr char kAllReduce[] =
    "all_reduce.py) echo 'a warning'; test -e $here/again && ms=8 || ms=4; touch $here/again\n"
    "  for n in 4 256 4096 40960; do\n"
    "    echo '{\"name\": \"allreduce 2 ranks '$n' KiB\", \"median_ms\": '$ms'}'; done;;\n";

Outcome against(const FakePython& python, std::vector<std::string> words) {
  words.insert(words.begin(), {"bench", "--against", python.path(), "--repeats", "1"});
  return lockstep(words);
}

void expect_one_line(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(BenchAgainst, ComparesMediansOfTheRoundsAndUpdatesADocument) {
  const FakePython python(std::string(kVersion) + kAllReduce);
  spill(python.file("page.md"),
        "before\n<!-- table: lockstep bench --against -->\nold\n<!-- end of table -->\nafter\n");
  const Outcome outcome = against(python, {"--only", "allreduce-4k,allreduce-40m", "--rounds", "2",
                                           "--json", "--update", python.file("page.md")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json table = json::parse(outcome.out);
  EXPECT_EQ(table["torch"], "9.8.7");
  ASSERT_EQ(table["rows"].size(), 2u);
  const json& small = table["rows"][0];
  EXPECT_EQ(small["unit"], "µs");
  EXPECT_EQ(small["pytorch"], 6000);
  EXPECT_EQ(small["rounds"]["pytorch"], json({4000, 8000}));
  const double ours = small["lockstep"].get<double>();
  EXPECT_GT(ours, 0);
  EXPECT_NEAR(small["ratio"].get<double>(), 6000 / ours, 1e-6 * 6000 / ours);
  EXPECT_EQ(small["met"], 6000 / ours >= 10);
  EXPECT_EQ(table["rows"][1]["pytorch"], 6);
  EXPECT_GT(table["rows"][1]["share_of_limit"].get<double>(), 0);
  EXPECT_GE(table["limits"].size(), 4u);

  const std::string page = slurp(python.file("page.md"));
  EXPECT_EQ(page.find("before\n<!-- table: lockstep bench --against -->\n\n"), 0u) << page;
  EXPECT_NE(page.find("| all-reduce of 4 KiB between 2 ranks (Gloo) |"), std::string::npos) << page;
  EXPECT_NE(page.find("PyTorch 9.8.7"), std::string::npos) << page;
  EXPECT_EQ(page.find("old\n"), std::string::npos) << page;
  EXPECT_NE(page.find("<!-- end of table -->\nafter\n"), std::string::npos) << page;
}

TEST(BenchAgainst, NoTorchIsOneLine) {
  const FakePython python(
      "*) echo 'Traceback (most recent call last):' >&2\n"
      "   echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1;;\n");
  const Outcome outcome = against(python, {});
  expect_one_line(outcome, 2, "No module named 'torch'");
  EXPECT_NE(outcome.err.find("pip install torch"), std::string::npos);
}

TEST(BenchAgainst, NoPythonIsOneLine) {
  expect_one_line(lockstep({"bench", "--against", "/nowhere/python"}), 3, "/nowhere/python");
  expect_one_line(lockstep({"bench", "--against", "no-such-python"}), 3, "PATH");
}

TEST(BenchAgainst, NoPeersAreOneLine) {
  const FakePython python(kVersion);
  expect_one_line(against(python, {"--peers", "/nowhere"}), 3, "/nowhere");
  EXPECT_EQ(python.calls(), "");
}

// The peer's error comes after the rounds before it were told, so it is the last line.
std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1);
}

TEST(BenchAgainst, APeerThatFailsIsNamed) {
  const FakePython python(std::string(kVersion) +
                          "all_reduce.py) echo 'RuntimeError: no Gloo' >&2; exit 1;;\n");
  const Outcome outcome = against(python, {"--only", "allreduce-4k", "--rounds", "1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(last_line(outcome.err),
            "lockstep: the peer all_reduce.py --ranks 2 --repeats 1: expected results, got exit "
            "code 1: RuntimeError: no Gloo\n");
  EXPECT_EQ(outcome.out, "");
}

TEST(BenchAgainst, APeerWithoutFiguresIsNamed) {
  const FakePython python(std::string(kVersion) + "all_reduce.py) echo done;;\n");
  const Outcome outcome = against(python, {"--only", "allreduce-4k", "--rounds", "1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(last_line(outcome.err).find("allreduce-4k: expected median_ms"), std::string::npos)
      << outcome.err;
}

TEST(BenchAgainst, APeerThatHangsIsKilled) {
  const FakePython python("version.py) echo $$ >$here/pid; sleep 300; exit 0;;\n");
  expect_one_line(against(python, {"--timeout", "1"}), 3, "--timeout");
  EXPECT_NE(::kill(std::stoi(slurp(python.file("pid"))), 0), 0);
}

TEST(BenchAgainst, CtrlCEndsBothSides) {
  const FakePython python("version.py) echo $$ >$here/pid; sleep 300; exit 0;;\n");
  Process process({"bench", "--against", python.path()});
  for (int i = 0; i < 1000 && slurp(python.file("pid")).find('\n') == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  process.signal(SIGINT);
  expect_one_line(process.wait(), 130, "interrupted");
  EXPECT_NE(::kill(std::stoi(slurp(python.file("pid"))), 0), 0);
}

TEST(BenchAgainst, MistakesAreSaidBeforeAnythingRuns) {
  const FakePython python(kVersion);
  spill(python.file("page.md"), "no block\n");
  expect_one_line(against(python, {"--update", python.file("page.md")}), 2, "--update");
  expect_one_line(against(python, {"--update", python.file("none.md")}), 3, "none.md");
  expect_one_line(against(python, {"--text", python.file("none.txt")}), 3, "none.txt");
  expect_one_line(against(python, {"--only", "nanno"}), 2, "--only nanno");
  expect_one_line(against(python, {"step"}), 2, "--only step");
  expect_one_line(lockstep({"bench", "step", "--rounds", "3"}), 2, "--against");
  EXPECT_EQ(python.calls(), "");
}

}  // namespace
}  // namespace lockstep::test

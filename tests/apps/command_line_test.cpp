#include "tests/apps/program.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test_paths.h"

namespace lockstep::test {
namespace {

using Words = std::vector<std::string>;

TEST(CommandLine, VersionAndInfo) {
  EXPECT_EQ(lockstep({"--version"}).out.rfind("lockstep ", 0), 0u);
  const Outcome info = lockstep({"info"});
  EXPECT_EQ(info.code, 0);
  for (const char* word : {"compiler", "isa", "onednn", "backends", "cores", "memory"})
    EXPECT_NE(info.out.find(word), std::string::npos) << word;
  const auto json = nlohmann::json::parse(lockstep({"info", "--json"}).out);
  EXPECT_GE(json["cores"].get<int>(), 1);
}

TEST(CommandLine, HelpFitsTwoScreensAndShowsWhatItMust) {
  for (const Words& command : {Words{"train", "transformer"},
                               {"train", "recommender"},
                               {"sample"},
                               {"report"},
                               {"bench"},
                               {"info"}}) {
    Words words = command;
    words.push_back("--help");
    const Outcome help = lockstep(words);
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 72);
    EXPECT_NE(help.out.find("usage: lockstep " + command[0]), std::string::npos);
    EXPECT_NE(help.out.find("examples:\n  lockstep "), std::string::npos);
    EXPECT_NE(help.out.find("exit codes: 0 ok"), std::string::npos);
    size_t begin = 0;
    for (size_t end; (end = help.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      int64_t columns = 0;
      for (size_t i = begin; i < end; ++i) columns += (help.out[i] & 0xc0) != 0x80 ? 1 : 0;
      EXPECT_LE(columns, 105) << help.out.substr(begin, end - begin);
    }
  }
  EXPECT_EQ(lockstep({"help", "sample"}).out, lockstep({"sample", "--help"}).out);
  EXPECT_EQ(lockstep({"--help"}).code, 0);
}

TEST(CommandLine, ListsNeedNothingElseOnTheLine) {
  for (const Words& words : {Words{"--sync", "help"},
                             {"train", "transformer", "--sync", "help"},
                             {"train", "transformer", "--sync=help"},
                             {"train", "recommender", "--sync", "help"}}) {
    const Outcome list = lockstep(words);
    EXPECT_EQ(list.code, 0) << list.err;
    EXPECT_NE(list.out.find("allreduce"), std::string::npos);
  }
  EXPECT_NE(lockstep({"train", "transformer", "--optimizer", "help"}).out.find("adamw"),
            std::string::npos);
  EXPECT_NE(lockstep({"--backend", "help"}).out.find("threads"), std::string::npos);
  EXPECT_NE(lockstep({"--text", "help"}).out.find("synthetic"), std::string::npos);
  EXPECT_NE(lockstep({"--data", "help"}).out.find("criteo:FILE"), std::string::npos);
  EXPECT_NE(lockstep({"--table-optimizer", "help"}).out.find("lazy_adam"), std::string::npos);
}

// Exit code of a shell line in which $L is the program.
int shell(const std::string& line) {
  return WEXITSTATUS(std::system(("L=" + Process::quoted(LOCKSTEP_PROGRAM) + "; " + line).c_str()));
}

TEST(CommandLine, AReaderThatGoesAwayIsNoError) {
  TempFolder folder;
  EXPECT_EQ(shell("(sleep 0.3; $L info; echo $? >" + (folder / "code") + ") | true"), 0);
  EXPECT_EQ(slurp(folder / "code"), "0\n");
  EXPECT_EQ(shell("$L info >&- 2>&-"), 0);
}

TEST(CommandLine, AFullStdoutIsAFileError) {
  TempFolder folder;
  EXPECT_EQ(shell("$L --version >/dev/full 2>" + (folder / "err")), 3);
  EXPECT_EQ(slurp(folder / "err"), "lockstep: cannot write to stdout: No space left on device\n");
}

struct BadLine {
  Words words;
  int code;
  std::string text;  ///< part of the message
};

// Apps have lists under the same name.
TEST(CommandLine, ListsAreThoseOfTheCommand) {
  EXPECT_NE(lockstep({"train", "vision", "--data", "help"}).out.find("cifar10"), std::string::npos);
  EXPECT_NE(lockstep({"train", "recommender", "--data", "help"}).out.find("criteo"),
            std::string::npos);
  EXPECT_NE(lockstep({"--sync", "help"}).out.find("allreduce"), std::string::npos);
}

TEST(CommandLine, MistakesAreOneLineAndTheDocumentedCode) {
  const BadLine lines[] = {
      {{}, 2, "expected a command"},
      {{"trian"}, 2, "did you mean train?"},
      {{"train"}, 2, "expected one of transformer"},
      {{"train", "vison"}, 2, "got 'vison'; did you mean vision?"},
      {{"train", "recomender"}, 2, "got 'recomender'; did you mean recommender?"},
      {{"--jsn"}, 2, "expected a command, got the option '--jsn'"},
      {{"info", "--jsn"}, 2, "unknown option '--jsn'; did you mean --json?"},
      {{"info", "x"}, 2, "unexpected argument 'x'"},
      {{"sample"}, 2, "expected one run directory"},
      {{"sample", "/nonexistent"}, 3, "No such file"},
      {{"sample", "/nonexistent", "--tokens", "-1"}, 2, "--tokens"},
      {{"sample", "/nonexistent", "--temperature", "-1"}, 2, "--temperature"},
      {{"report"}, 2, "expected run directories"},
      {{"report", "/nonexistent"}, 3, "No such file"},
      {{"bench", "matmull"}, 2, "did you mean matmul?"},
      {{"bench", "step", "--preset", "9x9"}, 2, "--preset"},
      {{"sample", "/tmp/\xff\n"}, 3, "\\xff\\x0a"},
  };
  for (const BadLine& bad : lines) {
    const Outcome outcome = lockstep(bad.words);
    EXPECT_EQ(outcome.code, bad.code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_EQ(outcome.err.rfind("lockstep: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find(bad.text), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace lockstep::test

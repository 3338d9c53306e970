#include "tests/apps/program.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace lockstep::test {
namespace {

struct Bad {
  std::string options;  ///< after the defaults below; the last of two equal options counts
  int code;
  std::string text;  ///< part of the message
};

class BadInput : public testing::Test {
 protected:
  BadInput() {
    spill(folder_ / "text", std::string(400, 'x') + "abcdefgh");
    spill(folder_ / "short", "hello");
    spill(folder_ / "empty", "");
  }
  // Runs a training that must fail, and checks the way in which it does.
  void expect(const Bad& bad, const std::string& prefix = "") {
    std::vector<std::string> words{"train", "transformer", "--out", folder_ / "out"};
    if (bad.options.find("--text") == std::string::npos)
      words.insert(words.end(), {"--text", folder_ / "text"});
    for (const std::string& word : words_of(bad.options)) words.push_back(word);
    const Outcome outcome = lockstep(words, prefix);
    EXPECT_EQ(outcome.code, bad.code) << bad.options << "\n" << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_EQ(outcome.err.rfind("lockstep: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find(bad.text), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  void expect_nothing_written() { EXPECT_FALSE(std::filesystem::exists(folder_ / "out")); }

  TempFolder folder_;
};

TEST_F(BadInput, OptionsThatDoNotExistOrFit) {
  for (const Bad& bad : {
           Bad{"--compress tokp", 2, "did you mean topk?"},
           {"--compress topk:ratio=2", 2, "ratio"},
           {"--resume runs/a", 2, "unknown option '--resume'"},
           {"--bacth 4", 2, "did you mean --batch?"},
           {"--batch", 2, "--batch: expected a value, got nothing"},
           {"--batch --steps 5", 2, "--batch: expected a value, got the option --steps"},
           {"--ranks 0", 2, "--ranks: expected an integer 1..1024, got '0'"},
           {"--ranks -2", 2, "got '-2'"},
           {"--layers -1", 2, "--layers"},
           {"--steps 0", 2, "--steps"},
           {"--steps 1000000000000000000", 2, "--steps"},
           {"--batch 1000000000000000000", 2, "--batch"},
           {"--layers 99999999999999999999999", 2, "--layers"},
           {"--accumulate 0", 2, "--accumulate"},
           {"--heads 3", 2, "--heads 3 does not divide --width 128; try 1, 2, 4, 8, 16"},
           {"--lr fast", 2, "--lr: expected a number"},
           {"--lr 1,5", 2, "--lr: expected a number"},
           {"--lr nan", 2, "--lr: expected a number"},
           {"--lr -1", 2, "--lr: expected a number"},
           {"--betas 0.9", 2, "--betas: expected two numbers"},
           {"--betas 0.9,1", 2, "--betas"},
           {"--sync alreduce", 2, "did you mean allreduce?"},
           {"--sync allreduce:x=1", 2, "allreduce"},
           {"--sync :", 2, "expected name"},
           {"--optimizer adamm", 2, "did you mean adam"},
           {"--optimizer sgd:momentum=fast", 2, "momentum"},
           {"--backend mpi", 2, "--backend: expected"},
           {"--backend solo --ranks 2", 2, "--backend solo: expected --ranks 1"},
           {"--schedule cosin", 2, "did you mean cosine?"},
           {"--vocab word", 2, "--vocab: expected byte, char"},
           {"--global-batch 7 --ranks 2", 2, "--global-batch 7: expected a multiple"},
           {"--global-batch 8 --batch 3 --accumulate 1", 2, "--global-batch 8: expected"},
           {"--warmup 10 --steps 5", 2, "--warmup 10"},
           {"--min-lr 1 --schedule cosine", 2, "--min-lr 1"},
           {"--batch 400", 2, "windows a step"},
           {"--ranks 400 --batch 1", 2, "--ranks 400"},
           {"--lr 1 --lr 2", 2, "--lr was given 2 times"},
           {"runs/a", 2, "unexpected argument 'runs/a'"},
       }) {
    expect(bad);
    expect_nothing_written();
  }
}

TEST_F(BadInput, TextsThatCannotBeUsed) {
  for (const Bad& bad : {
           Bad{"--text " + (folder_ / "none"), 3, "No such file"},
           {"--text " + (folder_ / "empty"), 3, "is empty"},
           {"--text " + folder_.path(), 3, "Is a directory"},
           {"--text " + (folder_ / "short"), 3,
            "is too short; expected at least 65 tokens for --context 64, got 5"},
           {"--text " + (folder_ / "text") + " --context 1000000", 3, "is too short"},
           {"--text synthetic:order=9", 2, "order"},
           {"--text synthetic:length=10", 3, "is too short"},
           {"--config " + (folder_ / "none"), 3, "--config"},
       }) {
    expect(bad);
    expect_nothing_written();
  }
  if (::geteuid() != 0) {  // root may read everything
    std::filesystem::permissions(folder_ / "text", std::filesystem::perms::none);
    expect({"", 3, "Permission denied"});
  }
}

TEST_F(BadInput, ModelsThatNoMachineCanHold) {
  for (const Bad& bad : {Bad{"--width 1000000 --heads 1 --layers 10000", 4, "out of memory"},
                         {"--width 1000000 --heads 1 --ranks 100 --batch 1", 4, "out of memory"}}) {
    expect(bad);
    expect_nothing_written();
  }
}

TEST_F(BadInput, PlacesThatCannotBeWritten) {
  spill(folder_ / "file", "x");
  const std::string small = " --steps 1 --threads 1 --layers 1 --batch 2";
  std::filesystem::create_directory(folder_ / "out");
  spill(folder_ / "out/precious", "x");
  expect({small, 2, "already holds files"});
  EXPECT_EQ(slurp(folder_ / "out/precious"), "x");
  std::filesystem::remove_all(folder_ / "out");

  for (const std::string& place :
       {folder_ / "file", folder_ / "file/below", std::string("/proc/none/below"),
        folder_ / std::string(256, 'n'), folder_ / std::string(5000, 'p')}) {
    std::vector<std::string> words =
        words_of("train transformer --quiet --text " + (folder_ / "text") + small);
    words.insert(words.end(), {"--out", place});
    const Outcome outcome = lockstep(words);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
  }
}

TEST_F(BadInput, AFullDiskLeavesNothingHalfWritten) {
  const std::string small = "--quiet --steps 2 --threads 1 --layers 1 --batch 2 --eval-every 0";
  // A model of about 900 kB: the small files fit, the model does not.
  expect({small, 3, "cannot write " + (folder_ / "out") + "/model.safetensors"}, "ulimit -f 100;");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model.safetensors"));
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "out"))
    EXPECT_EQ(file.path().string().find(".tmp"), std::string::npos) << file.path();
  std::filesystem::remove_all(folder_ / "out");

  const Outcome stdout_full = lockstep(words_of("train transformer --text " + (folder_ / "text") +
                                                " " + small + " --out " + (folder_ / "out")));
  EXPECT_EQ(stdout_full.code, 0) << stdout_full.err;
}

TEST_F(BadInput, DivergenceNamesStepAndParameter) {
  for (const std::string& ranks : {std::string("1"), std::string("2")}) {
    expect({"--quiet --lr 1e30 --steps 5 --threads 1 --layers 2 --batch 2 --overwrite --ranks " +
                ranks,
            5,
            "loss is NaN at step 2: first non-finite value in wte.weight (gradient); lower --lr"});
    EXPECT_NE(slurp(folder_ / "out/summary.json").find("\"status\": \"diverged\""),
              std::string::npos);
    EXPECT_NE(slurp(folder_ / "out/metrics.jsonl").find("\"step\":2,"), std::string::npos);
    EXPECT_NE(slurp(folder_ / "out/metrics.jsonl").find("\"loss\":null"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model.safetensors"));
  }
}

TEST_F(BadInput, EveryLineOfAConfigFileMustBeUnderstood) {
  for (const std::string line : {"stepz = 2", "\xff\xfe", "++", "[section]", "config = x", "="}) {
    spill(folder_ / "config", "lr = 1e-3\n# remark\n\n" + line + "\n");
    expect({"--config " + (folder_ / "config"), 2, "unknown option"});
    expect_nothing_written();
  }
  expect({"--config /dev/zero", 3, "expected a regular file"});
  expect({"--text /dev/zero", 3, "has no end"});
}

}  // namespace
}  // namespace lockstep::test

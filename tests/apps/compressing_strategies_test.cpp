// Training with codes, or with strategies that compress by themselves, as a user would.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

namespace lockstep::test {
namespace {

// The text of ./run demo, made by the same command; empty where the package is not installed.
std::string demo_text(const TempFolder& folder) {
  const std::string path = folder / "king-james.txt";
  const std::string command =
      "command -v bible >/dev/null && bible -f gen1:1-rev22:21 | "
      "sed -E 's/^[A-Za-z0-9]+:[0-9]+ //' > " +
      Process::quoted(path);
  if (std::system(command.c_str()) != 0) return "";
  return std::filesystem::file_size(path) > 1'000'000 ? path : "";
}

double val_loss(const TempFolder& folder, const std::string& text, const std::string& more) {
  std::vector<std::string> words = words_of(
      "train transformer --layers 2 --heads 2 --width 32 --context 32 --batch 8 --steps 3000 "
      "--ranks 2 --optimizer sgd --lr 0.1 --seed 1 --eval-every 0 --quiet " +
      more);
  for (const std::string& word : {std::string("--text"), text, std::string("--out"), folder / "r"})
    words.push_back(word);
  const Outcome outcome = lockstep(words);
  EXPECT_EQ(outcome.code, 0) << more << ": " << outcome.err;
  const double loss = summary_of(folder / "r")["val_loss"].get<double>();
  std::filesystem::remove_all(folder / "r");
  return loss;
}

// Plain SGD is linear in what is sent, so feedback makes up for what codes lose. A hundredth of
// the gradient without feedback is what cannot do it (0.15 behind).
TEST(SlowCompressedTraining, PlainSgdReachesTheUncompressedLossOnTheDemoText) {
  TempFolder folder;
  const std::string text = demo_text(folder);
  if (text.empty()) GTEST_SKIP() << "no `bible` here (package bible-kjv), whose text the demo uses";
  const double dense = val_loss(folder, text, "");
  EXPECT_LT(dense, 2.3) << "it has not learned anything";
  for (const char* code :
       {"topk:ratio=0.01,scope=tensor+ef", "fp8:e4m3,scope=tensor", "fp8:e4m3,scope=tensor+ef"})
    EXPECT_LT(val_loss(folder, text, std::string("--compress ") + code), dense + 0.03)
        << code << " against " << dense;
  EXPECT_LT(val_loss(folder, text, "--sync powersgd"), dense + 0.03) << "against " << dense;
  EXPECT_GT(val_loss(folder, text, "--compress topk:ratio=0.01"), dense + 0.03)
      << "without feedback, against " << dense;
}

TEST(CompressingStrategies, StrategiesThatSendSomethingElseRefuseIt) {
  for (const char* sync : {"powersgd", "onebit_adam", "local_sgd"}) {
    const Outcome outcome = lockstep(words_of(
        std::string("train transformer --text synthetic:order=1 --compress fp16 --sync ") + sync));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("something else than gradients"), std::string::npos) << outcome.err;
  }
}

TEST(CompressingStrategies, OneBitAdamWantsAdam) {
  const Outcome outcome = lockstep(
      words_of("train transformer --text synthetic:order=1 --sync onebit_adam --optimizer sgd"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("expected adam or adamw"), std::string::npos) << outcome.err;
}

TEST(CompressingStrategies, PowerSgdAndOneBitAdamTrainInEveryPrecision) {
  for (const char* sync : {"powersgd", "onebit_adam:warmup=5"})
    for (const char* precision : {"fp32", "amp-fp16", "amp-bf16", "half-fp16", "half-bf16"}) {
      TempFolder folder;
      const Outcome outcome = lockstep(words_of(
          std::string(
              "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 "
              "--heads 2 --width 16 --context 16 --batch 8 --steps 40 --accumulate 2 "
              "--ranks 2 --lr 1e-2 --clip 1 --seed 3 --quiet --sync ") +
          sync + " --precision " + precision + " --out " + (folder / "r")));
      ASSERT_EQ(outcome.code, 0) << sync << " " << precision << ": " << outcome.err;
      const auto summary = summary_of(folder / "r");
      EXPECT_LT(summary["val_loss"].get<double>(), 1.25) << sync << " " << precision;
      EXPECT_LT(summary["skipped_steps"].get<int64_t>(), 10) << sync << " " << precision;
    }
}

}  // namespace
}  // namespace lockstep::test

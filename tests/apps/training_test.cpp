#include "tests/apps/program.h"

#include "core/safetensors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace lockstep::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// A model small enough to train in a moment, on a text with known entropy.
Words tiny(const std::string& out, const std::string& more = "") {
  Words words = words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 --heads 2 "
      "--width 16 --context 16 "
      "--batch 8 --steps 20 --eval-every 10 --threads 1 --seed 3 --quiet --out " +
      out);
  for (const std::string& word : words_of(more)) {
    const auto same = std::find(words.begin(), words.end(), word);
    if (word.rfind("--", 0) == 0 && same != words.end())
      words.erase(same, same + 2);  // `more` wins
    words.push_back(word);
  }
  return words;
}

std::vector<json> metrics(const std::string& run) {
  std::vector<json> lines;
  const std::string text = slurp(run + "/metrics.jsonl");
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(json::parse(text.substr(begin, end - begin)));
  return lines;
}

TEST(Training, WritesTheContractedFields) {
  TempFolder folder;
  const Outcome outcome = lockstep(tiny(folder / "r", "--json --ranks 2"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");

  const json summary = json::parse(outcome.out);
  EXPECT_EQ(summary, json::parse(slurp(folder / "r/summary.json")));
  for (const char* field :
       {"final_loss", "val_loss", "samples_per_s", "tokens_per_s", "wire_bytes", "all_reduce_calls",
        "steps", "skipped_steps", "peak_memory_bytes", "wall_s", "virtual_s"})
    EXPECT_TRUE(summary.contains(field)) << field;
  EXPECT_EQ(summary["steps"], 20);
  EXPECT_GT(summary["wire_bytes"].get<int64_t>(), 0);
  EXPECT_GT(summary["peak_memory_bytes"].get<int64_t>(), 1 << 20);

  const json run = json::parse(slurp(folder / "r/run.json"));
  EXPECT_EQ(run["command"], "train transformer");
  EXPECT_EQ(run["config"]["lr"], 1e-3);
  EXPECT_EQ(run["config"]["global_batch"], 16);
  EXPECT_EQ(run["config"]["backend"], "threads");
  EXPECT_TRUE(run["versions"].contains("lockstep"));
  EXPECT_TRUE(run["machine"].contains("cores"));

  const auto steps = metrics(folder / "r");
  ASSERT_EQ(steps.size(), 20u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["samples"], 16);
    for (const char* field :
         {"time_s", "loss", "lr", "wire_bytes", "comm_s", "exposed_comm_s", "scale", "skipped"})
      EXPECT_TRUE(steps[i].contains(field)) << field;
    EXPECT_EQ(steps[i].contains("val_loss"), (i + 1) % 10 == 0);
  }
  EXPECT_EQ(steps.back()["loss"], summary["final_loss"]);
  EXPECT_EQ(steps.back()["val_loss"], summary["val_loss"]);
}

TEST(Training, LossFallsToTheEntropyOfTheText) {
  TempFolder folder;
  const Outcome outcome =
      lockstep(tiny(folder / "r", "--steps 400 --lr 5e-3 --schedule cosine --warmup 20 --json"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json summary = json::parse(outcome.out);
  const double best = summary["best_possible_loss"], reached = summary["val_loss"];
  EXPECT_GT(reached, best - 0.03);  // a sample of the text may be a little easier than its source
  EXPECT_LT(reached, best + 0.05);
  EXPECT_GT(metrics(folder / "r").front()["loss"].get<double>(), 5);  // ln 256 = 5.545
}

TEST(Training, TwoRanksAreOneRankWithTwoMicroBatchesBitForBit) {  // promise 2
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "ranks", "--ranks 2 --dropout 0.1 --clip 1")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "micro", "--accumulate 2 --dropout 0.1 --clip 1")).code, 0);
  EXPECT_EQ(slurp(folder / "ranks/model.safetensors"), slurp(folder / "micro/model.safetensors"));
  const auto a = metrics(folder / "ranks"), b = metrics(folder / "micro");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i]["loss"], b[i]["loss"]) << i;
}

TEST(Training, FourMicroBatchesAreOneLargeBatchWithinRounding) {  // promise 3
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "micro", "--batch 4 --accumulate 4")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "large", "--batch 16")).code, 0);
  const auto a = metrics(folder / "micro"), b = metrics(folder / "large");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4) << i;
  // One all-reduce per bucket and step, however many micro-batches.
  const json s = json::parse(slurp(folder / "micro/summary.json"));
  EXPECT_EQ(s["all_reduce_calls"].get<int64_t>(), 20 * s["buckets"].get<int64_t>());
}

TEST(KnownFaults, O21_MetricsAreMeansOverTokensOfAllRanks) {
  TempFolder folder;
  // 37 windows in steps of 8: the last step of an epoch has 5, which two ranks share 3 to 2.
  spill(folder / "text", std::string("the quick brown fox jumps over the lazy dog. 12345678"));
  const std::string options =
      "--text " + (folder / "text") + " --val-fraction 0 --context 16 --steps 5 ";
  ASSERT_EQ(lockstep(tiny(folder / "two", options + "--batch 4 --ranks 2")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "one", options + "--batch 8")).code, 0);
  const auto a = metrics(folder / "two"), b = metrics(folder / "one");
  ASSERT_EQ(a.size(), 5u);
  EXPECT_EQ(a[4]["samples"], 5);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-5) << i;
}

TEST(KnownFaults, O02_TheScheduleAdvancesOncePerOptimiserStep) {
  TempFolder folder;
  const std::string schedule = "--schedule linear --lr 0.01 --min-lr 0 --steps 10 ";
  for (const std::string split : {"--batch 8", "--batch 2 --ranks 2 --accumulate 2"}) {
    ASSERT_EQ(lockstep(tiny(folder / "r", schedule + split + " --overwrite")).code, 0);
    const auto steps = metrics(folder / "r");
    for (size_t i = 0; i < 10; ++i)
      EXPECT_NEAR(steps[i]["lr"].get<double>(), 0.01 * (1 - static_cast<double>(i) / 10), 1e-12)
          << split << ", step " << i;
  }
}

TEST(KnownFaults, O05_RanksWithoutDataAtTheEndOfAnEpochKeepUp) {
  TempFolder folder;
  // 33 windows in steps of 8: the fifth step has one, so all ranks but the first have nothing.
  spill(folder / "text", std::string("the quick brown fox jumps over the lazy dog. 1234"));
  const std::string options =
      "--text " + (folder / "text") + " --val-fraction 0 --context 16 --steps 11 --timeout 20 ";
  ASSERT_EQ(lockstep(tiny(folder / "one", options + "--batch 8")).code, 0);
  const auto alone = metrics(folder / "one");
  for (const std::string split :
       {"--ranks 2 --batch 4", "--ranks 4 --batch 1 --accumulate 2",
        "--ranks 2 --batch 4 --sync naive", "--ranks 2 --batch 4 --uneven initial"}) {
    const Outcome outcome = lockstep(tiny(folder / "r", options + split + " --overwrite"));
    ASSERT_EQ(outcome.code, 0) << split << ": " << outcome.err;
    const auto steps = metrics(folder / "r");
    ASSERT_EQ(steps.size(), 11u) << split;
    EXPECT_EQ(steps[4]["samples"], 1) << split;
    if (split.find("initial") != std::string::npos) continue;  // divides by the absent, too
    for (size_t i = 0; i < 11; ++i)
      EXPECT_NEAR(steps[i]["loss"].get<double>(), alone[i]["loss"].get<double>(), 1e-5)
          << split << ", step " << i;
  }
}

TEST(KnownFaults, O38_TwentyStepsTwiceGiveTheSameBytes) {
  TempFolder folder;
  for (const std::string& options :
       {std::string(), std::string("--threads 2"), std::string("--ranks 3 --dropout 0.2")}) {
    ASSERT_EQ(lockstep(tiny(folder / "a", options + " --overwrite")).code, 0);
    ASSERT_EQ(lockstep(tiny(folder / "b", options + " --overwrite")).code, 0);
    EXPECT_EQ(slurp(folder / "a/model.safetensors"), slurp(folder / "b/model.safetensors"))
        << options;
  }
}

TEST(Training, TheSeedDecidesWeightsAndOrder) {
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "a", "--steps 1")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "b", "--steps 1 --seed 4")).code, 0);
  EXPECT_NE(metrics(folder / "a")[0]["loss"], metrics(folder / "b")[0]["loss"]);
}

TEST(Training, GlobalBatchSetsTheProduct) {
  TempFolder folder;
  Words words = tiny(folder / "r", "--global-batch 24 --ranks 2 --accumulate 3 --steps 1");
  const auto batch = std::find(words.begin(), words.end(), "--batch");
  words.erase(batch, batch + 2);
  ASSERT_EQ(lockstep(words).code, 0);
  EXPECT_EQ(json::parse(slurp(folder / "r/run.json"))["config"]["batch"], 4);
  EXPECT_EQ(metrics(folder / "r")[0]["samples"], 24);
}

TEST(Training, AConfigFileSaysTheSameAsTheLine) {
  TempFolder folder;
  spill(folder / "c.toml", "lr = 0.003\nbetas = [0.9, 0.99]\nschedule = \"cosine\"\nbias = off\n");
  ASSERT_EQ(lockstep(tiny(folder / "file", "--config " + (folder / "c.toml"))).code, 0);
  ASSERT_EQ(
      lockstep(tiny(folder / "line", "--lr 0.003 --betas 0.9,0.99 --schedule cosine --bias off"))
          .code,
      0);
  EXPECT_EQ(slurp(folder / "file/model.safetensors"), slurp(folder / "line/model.safetensors"));
}

TEST(Training, WithoutOutEachRunGetsADirectoryOfItsOwn) {
  TempFolder folder;
  Words words = tiny("x", "--steps 1");
  words.resize(words.size() - 2);
  words = tiny("", "--steps 1");
  words.erase(std::find(words.begin(), words.end(), "--out"));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(lockstep(words, "cd " + folder.path() + ";").code, 0);
  int runs = 0;
  for (const auto& run : std::filesystem::directory_iterator(folder / "runs")) {
    EXPECT_TRUE(std::filesystem::exists(run.path() / "model.safetensors"));
    ++runs;
  }
  EXPECT_EQ(runs, 3);
}

TEST(Training, ASignalEndsTheRunCleanlyAfterTheStep) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    TempFolder folder;
    Process process(tiny(folder / "r", "--ranks 2 --steps 1000000 --eval-every 0"));
    while (slurp(folder / "r/metrics.jsonl").size() < 1000)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    process.signal(signal);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const json summary = json::parse(slurp(folder / "r/summary.json"));
    EXPECT_EQ(summary["status"], "interrupted");
    EXPECT_EQ(summary["steps"], metrics(folder / "r").size());
    EXPECT_NO_THROW(SafetensorsReader(folder / "r/model.safetensors"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "r"), {}),
              4);  // no temporary
  }
}

// Within rounds longer than the run, and where ranks never meet, all end after the same step: one
// that went on alone would fail in what the ranks then do together.
TEST(Training, ASignalEndsRanksThatDecideAloneTogether) {
  for (const std::string sync : {"local_sgd:8", "local_sgd:2000000", "gossip:2"})
    for (const char* backend : {"threads", "virtual"}) {
      TempFolder folder;
      Process process(tiny(folder / "r", "--ranks 3 --steps 1000000 --eval-every 0 --sync " + sync +
                                             " --backend " + backend));
      while (slurp(folder / "r/metrics.jsonl").size() < 1000)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      process.signal(SIGINT);
      const Outcome outcome = process.wait();
      EXPECT_EQ(outcome.code, 130) << sync << outcome.err;
      EXPECT_EQ(outcome.err, "");
      EXPECT_EQ(json::parse(slurp(folder / "r/summary.json"))["status"], "interrupted");
    }
}

// 5 windows of text for 4 ranks: in every other step three of them have none, and no loss.
TEST(Training, RanksWithoutDataGoOnWhereTheyDecideAlone) {
  for (const std::string sync : {"local_sgd:4", "gossip:1"}) {
    TempFolder folder;
    const Outcome outcome =
        lockstep(tiny(folder / "r",
                      "--ranks 4 --batch 1 --steps 12 --val-fraction 0 --text "
                      "synthetic:order=1,letters=4,length=21 --context 16 --sync " +
                          sync));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(metrics(folder / "r").size(), 12u);
  }
}

// Whichever rank is the first to see it.
TEST(Training, ADivergenceWithinARoundEndsTheRunAsDiverged) {
  for (int i = 0; i < 5; ++i)
    for (const char* backend : {"threads", "virtual"}) {
      TempFolder folder;
      const Outcome outcome =
          lockstep(tiny(folder / "r",
                        "--ranks 4 --sync local_sgd:20 --optimizer sgd --lr 1e30 "
                        "--backend " +
                            std::string(backend)));
      EXPECT_EQ(outcome.code, 5) << outcome.err;
      EXPECT_NE(outcome.err.find("loss is NaN at step"), std::string::npos) << outcome.err;
      EXPECT_EQ(json::parse(slurp(folder / "r/summary.json"))["status"], "diverged");
    }
}

TEST(Training, ASignalEndsAnEvaluationToo) {
  TempFolder folder;
  // The first step is followed by an evaluation that would take minutes.
  Process process(tiny(folder / "r",
                       "--ranks 2 --steps 3 --eval-every 1 --val-fraction 0.9 --val-tokens 0 "
                       "--text synthetic:order=1,length=20000000"));
  while (!std::filesystem::exists(folder / "r/run.json"))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  process.signal(SIGINT);
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_EQ(process.wait().code, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(20));
  EXPECT_EQ(json::parse(slurp(folder / "r/summary.json"))["status"], "interrupted");
}

TEST(Training, ASecondSignalEndsAtOnce) {
  TempFolder folder;
  // A step of many micro-batches lasts longer than the test waits.
  Process process(
      tiny(folder / "r",
           "--steps 2 --accumulate 1000000 --batch 1 --text synthetic:order=1,length=2000000"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  process.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().code, 130);
  EXPECT_FALSE(std::filesystem::exists(folder / "r/model.safetensors"));
}

TEST(Training, ProgressIsPlainLinesInAPipe) {
  TempFolder folder;
  Words words = tiny(folder / "r");
  words.erase(std::find(words.begin(), words.end(), "--quiet"));
  const Outcome outcome = lockstep(words);
  EXPECT_NE(outcome.err.find("step 10: loss "), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos);
}

TEST(KnownFaults, O51c_OddDirectoryNamesThroughTheProgram) {
  TempFolder folder;
  for (const std::string& name :
       {std::string("a\xff"), std::string("b\nc"), std::string(255, 'd')}) {
    Words words = tiny("OUT", "--steps 1 --json");
    *std::find(words.begin(), words.end(), "OUT") = folder / name;
    const Outcome outcome = lockstep(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NO_THROW(json::parse(outcome.out));
    EXPECT_NO_THROW(json::parse(slurp(folder / name + "/run.json")));
    EXPECT_EQ(lockstep({"sample", folder / name, "--tokens", "3"}).code, 0);
  }
}

TEST(Sample, GoesOnWithAPromptAndRepeatsForASeed) {
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "r", "--vocab char --steps 50")).code, 0);
  const Words line{"sample", folder / "r", "--prompt", "abca", "--tokens", "30", "--seed", "5"};
  const Outcome first = lockstep(line), second = lockstep(line);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.out.rfind("abca", 0), 0u);
  EXPECT_EQ(first.out.size(), 4u + 30 + 1);  // one byte a letter, and a new line
  EXPECT_EQ(first.out.find_first_not_of("abcd\n"), std::string::npos);

  const Outcome unknown = lockstep({"sample", folder / "r", "--prompt", "xyz"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.error_lines(), 1);
  EXPECT_EQ(unknown.out, "");
}

TEST(Report, ShowsRunsSideBySide) {
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "one")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "two", "--ranks 2 --batch 4")).code, 0);
  const std::string knobs = "--precision half-fp16 --wire bf16 --scale dynamic:start=16777216";
  ASSERT_EQ(lockstep(tiny(folder / "three", knobs)).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "four", "--precision half-bf16 --master off")).code, 0);
  const Outcome report =
      lockstep({"report", folder / "one", folder / "two", folder / "three", folder / "four"});
  EXPECT_EQ(report.code, 0) << report.err;
  for (const char* text :
       {"one", "two", "loss at step 20", "validation loss", "tokens/s", "all-reduce calls",
        "on the wire", "peak memory", "1 x 1 x 8", "2 x 1 x 4", "half-fp16 +", "half-bf16 +",
        "steps skipped", "curves differ by at most"})
    EXPECT_NE(report.out.find(text), std::string::npos) << text;
  EXPECT_EQ(report.out.find("fp32 +"), std::string::npos) << report.out;
}

}  // namespace
}  // namespace lockstep::test

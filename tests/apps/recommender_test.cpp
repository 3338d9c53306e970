#include "apps/recommender/click_data.h"
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace lockstep::test {
namespace {

using apps::ClickData;
using apps::load_click_data;
using nlohmann::json;
using Words = std::vector<std::string>;

// A model and data small enough to train in a moment.
Words small(const std::string& out, const std::string& more = "") {
  Words words = words_of(
      "train recommender --tables 3 --rows 50 --dim 4 --bottom 8 --top 8 --batch 32 --steps 10 "
      "--val-samples 501 --eval-every 5 --threads 1 --seed 3 --quiet --out " +
      out);
  for (const std::string& word : words_of(more)) {
    const auto same = std::find(words.begin(), words.end(), word);
    if (word.rfind("--", 0) == 0 && same != words.end())
      words.erase(same, same + 2);  // `more` wins
    words.push_back(word);
  }
  return words;
}

// Without what depends on the clock.
std::vector<json> steps_of(const std::string& run) {
  std::vector<json> steps = lines_of(run + "/metrics.jsonl");
  for (json& step : steps)
    for (const char* name : {"time_s", "comm_s", "exposed_comm_s", "wire_bytes", "tables"})
      step.erase(name);
  return steps;
}

TEST(Recommender, WritesTheContractedFields) {
  TempFolder folder;
  const Outcome outcome = lockstep(small(folder / "r", "--ranks 2 --json"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json summary = json::parse(outcome.out);
  EXPECT_EQ(summary, summary_of(folder / "r"));
  for (const char* field :
       {"status", "final_loss", "val_loss", "samples_per_s", "wire_bytes", "steps", "skipped_steps",
        "peak_memory_bytes", "wall_s", "auc", "log_loss", "calibration", "calibration_error",
        "best_auc", "best_log_loss", "share_of_best_auc", "tables"})
    EXPECT_TRUE(summary.contains(field)) << field;
  EXPECT_TRUE(summary["tokens_per_s"].is_null());
  EXPECT_EQ(summary["val_loss"], summary["log_loss"]);
  EXPECT_GT(summary["tables"]["rows_touched"].get<double>(), 3);
  EXPECT_GT(summary["tables"]["unique_row_bytes"].get<double>(), 0);
  // 3 tables of 50 x 4, 13-8-4, and 4 + 6 products: 10-8-1.
  EXPECT_EQ(summary["parameters"], 600 + (13 * 8 + 8 + 8 * 4 + 4) + (10 * 8 + 8 + 8 + 1));

  const json run = json::parse(slurp(folder / "r/run.json"));
  EXPECT_EQ(run["command"], "train recommender");
  EXPECT_EQ(run["config"]["bag"], "sum");
  EXPECT_EQ(run["config"]["bottom"], json({8}));
  const auto steps = lines_of(folder / "r/metrics.jsonl");
  ASSERT_EQ(steps.size(), 10u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["samples"], 64);
    for (const char* field :
         {"time_s", "loss", "lr", "wire_bytes", "comm_s", "exposed_comm_s", "scale", "skipped"})
      EXPECT_TRUE(steps[i].contains(field)) << field;
    for (const char* field : {"val_loss", "auc", "log_loss", "calibration", "tables"})
      EXPECT_EQ(steps[i].contains(field), (i + 1) % 5 == 0) << field;
  }
  EXPECT_EQ(steps.back()["auc"], summary["auc"]);
}

TEST(Recommender, TwoRanksAreOneRankWithTwoMicroBatchesBitForBit) {
  TempFolder folder;
  for (const std::string more :
       {"", " --data synthetic:largest_bag=3,weighted=on --clip 0.1 --table-optimizer lazy_adam"}) {
    ASSERT_EQ(lockstep(small(folder / "two", "--ranks 2 --overwrite" + more)).code, 0);
    ASSERT_EQ(lockstep(small(folder / "one", "--accumulate 2 --overwrite" + more)).code, 0);
    const auto two = steps_of(folder / "two"), one = steps_of(folder / "one");
    ASSERT_EQ(two.size(), 10u);
    for (size_t i = 0; i < two.size(); ++i)
      for (const char* field : {"loss", "auc", "calibration", "calibration_error"})
        EXPECT_EQ(two[i].value(field, json()), one[i].value(field, json())) << more << i << field;
  }
}

TEST(Recommender, TheSameSeedGivesTheSameBits) {
  TempFolder folder;
  ASSERT_EQ(lockstep(small(folder / "a", "--ranks 3")).code, 0);
  ASSERT_EQ(lockstep(small(folder / "b", "--ranks 3")).code, 0);
  ASSERT_EQ(lockstep(small(folder / "c", "--ranks 3 --seed 4")).code, 0);
  EXPECT_EQ(steps_of(folder / "a"), steps_of(folder / "b"));
  EXPECT_NE(steps_of(folder / "a"), steps_of(folder / "c"));
}

TEST(Recommender, TablesInPiecesAreTablesEverywhereBitForBit) {
  TempFolder folder;
  const std::string more = " --ranks 3 --accumulate 2 --clip 0.1 --overwrite";
  ASSERT_EQ(lockstep(small(folder / "whole", "--sync allreduce" + more)).code, 0);
  ASSERT_EQ(lockstep(small(folder / "pieces", "--sync sharded" + more)).code, 0);
  const auto whole = steps_of(folder / "whole"), pieces = steps_of(folder / "pieces");
  EXPECT_EQ(whole.size(), 10u);
  EXPECT_EQ(whole, pieces);
}

TEST(Recommender, OneRankIsPlainTrainingUnderEveryStrategy) {
  TempFolder folder;
  ASSERT_EQ(lockstep(small(folder / "plain")).code, 0);
  for (const std::string sync : {"naive", "sharded", "hybrid", "async", "hybrid:tables=hogwild"}) {
    const std::string more =
        sync == "hybrid:tables=hogwild" ? " --backend threads --sync " : " --sync ";
    ASSERT_EQ(lockstep(small(folder / "r", "--overwrite" + more + sync)).code, 0) << sync;
    const auto plain = steps_of(folder / "plain"), steps = steps_of(folder / "r");
    ASSERT_EQ(steps.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i)
      for (const char* field : {"loss", "auc", "log_loss"})
        EXPECT_EQ(steps[i].value(field, json()), plain[i].value(field, json())) << sync << i;
  }
}

TEST(Recommender, EveryStrategyWithARuleForTablesLearnsAndTellsOfThem) {
  TempFolder folder;
  for (const std::string sync : {"allreduce", "naive", "sharded", "hybrid", "async",
                                 "async:bound=0", "hybrid:tables=hogwild"}) {
    const Outcome outcome = lockstep(small(
        folder / "r", "--ranks 3 --steps 150 --overwrite --json --eval-every 0 --sync " + sync));
    ASSERT_EQ(outcome.code, 0) << sync << outcome.err;
    const json summary = json::parse(outcome.out);
    EXPECT_GT(summary["share_of_best_auc"].get<double>(), 0.3) << sync;
    EXPECT_GT(summary["tables"]["rows_touched"].get<double>(), 3) << sync;
    EXPECT_GT(summary["tables"]["unique_row_bytes"].get<double>(), 0) << sync;
    const bool stale = sync == "async" || sync.rfind("hybrid", 0) == 0;
    EXPECT_EQ(summary["tables"].contains("collision_rate"), stale) << sync;
    EXPECT_EQ(summary["tables"].contains("histograms"), stale) << sync;
  }
}

TEST(Recommender, EveryPrecisionAndBagTrains) {
  TempFolder folder;
  for (const char* more :
       {"--precision amp-bf16", "--precision amp-fp16 --ranks 2", "--precision half-bf16",
        "--bag mean --data synthetic:largest_bag=4", "--data synthetic:dense=0",
        "--schedule cosine --warmup 2 --lr 0 --table-lr 0.1", "--profile --ranks 2",
        "--uneven stop --unused error --ranks 2", "--table-optimizer sgd --table-lr 1"}) {
    const Outcome outcome = lockstep(small(folder / "r", std::string("--overwrite ") + more));
    EXPECT_EQ(outcome.code, 0) << more << outcome.err;
    EXPECT_TRUE(std::isfinite(summary_of(folder / "r")["log_loss"].get<double>())) << more;
  }
}

TEST(Recommender, OneClassHasNoAucAndSaysSo) {
  TempFolder folder;
  const Outcome outcome = lockstep(small(folder / "r", "--data synthetic:bias=-60"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("AUC undefined: its samples are of one class"), std::string::npos);
  EXPECT_TRUE(summary_of(folder / "r")["auc"].is_null());
  EXPECT_TRUE(summary_of(folder / "r")["calibration"].is_null());
}

TEST(Recommender, ATeacherOfChanceIsNoWayToGo) {
  TempFolder folder;
  const Outcome outcome =
      lockstep(small(folder / "r", "--data synthetic:dense_spread=0,row_spread=0,pair_spread=0"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("of the way"), std::string::npos) << outcome.out;
  EXPECT_EQ(summary_of(folder / "r")["best_auc"], 0.5);
  EXPECT_TRUE(summary_of(folder / "r")["share_of_best_auc"].is_null());
}

// Of 40 tables with 20 rows a sample each, 2^17 samples would take ten seconds, of 4096 half an
// hour.
TEST(Recommender, FindingTheBestPossibleTakesAMoment) {
  const auto best_of = [](const char* bag) {
    const ClickData data =
        load_click_data({.spec = std::string("synthetic:largest_bag=") + bag, .tables = 40});
    return data.find_best();
  };
  EXPECT_EQ(best_of("1").samples, int64_t{1} << 17);
  EXPECT_LE(best_of("256").samples, 4096);
  EXPECT_GE(best_of("256").samples, 1024);
}

TEST(Recommender, AModelledClusterTellsItsTime) {
  TempFolder folder;
  const Words line = small(folder / "r",
                           "--ranks 4 --backend virtual --cluster compute=1ms,slow=3:2 "
                           "--overwrite");
  std::string first;
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = lockstep(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json summary = summary_of(folder / "r");
    EXPECT_GE(summary["virtual_s"].get<double>(), 10 * 2e-3);
    EXPECT_EQ(summary["ranks"].size(), 4u);
    if (i == 0) first = summary["virtual_s"].dump();
    EXPECT_EQ(summary["virtual_s"].dump(), first);
  }
  EXPECT_EQ(lockstep(small(folder / "m", "--ranks 2 --backend virtual")).code, 0);  // measured
}

TEST(Recommender, ReportPutsRunsSideBySide) {
  TempFolder folder;
  ASSERT_EQ(lockstep(small(folder / "one")).code, 0);
  ASSERT_EQ(lockstep(small(folder / "two", "--ranks 2 --sync hybrid")).code, 0);
  const Outcome report = lockstep({"report", folder / "one", folder / "two"});
  EXPECT_EQ(report.code, 0) << report.err;
  for (const char* text : {"hybrid", "validation loss", "AUC", "samples/s", "loss at step 10",
                           "kB of rows a step, a rank", "row updates colliding, %"})
    EXPECT_NE(report.out.find(text), std::string::npos) << text;
  for (const char* text : {"accuracy", "tokens/s", "not modelled"})
    EXPECT_EQ(report.out.find(text), std::string::npos) << text;
}

TEST(Recommender, ASignalEndsTheRunCleanlyAfterTheStep) {
  for (const std::string sync :
       {"allreduce", "sharded", "hybrid", "async", "async --backend virtual"}) {
    TempFolder folder;
    Process process(small(folder / "r", "--ranks 2 --steps 1000000 --eval-every 0 --sync " + sync));
    while (slurp(folder / "r/metrics.jsonl").size() < 1000)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    process.signal(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 130) << sync << outcome.err;
    EXPECT_EQ(outcome.err, "") << sync;
    const json summary = summary_of(folder / "r");
    EXPECT_EQ(summary["status"], "interrupted");
    EXPECT_EQ(summary["steps"], lines_of(folder / "r/metrics.jsonl").size());
  }
}

TEST(Recommender, ASignalEndsAnEvaluationToo) {
  for (const std::string sync : {"sharded", "async"}) {
    TempFolder folder;
    // The first step is followed by an evaluation that would take minutes.
    Process process(small(folder / "r",
                          "--ranks 2 --steps 3 --eval-every 1 --batch 8 "
                          "--val-samples 100000000 --sync " +
                              sync));
    while (!std::filesystem::exists(folder / "r/run.json"))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    process.signal(SIGINT);
    const auto asked = std::chrono::steady_clock::now();
    EXPECT_EQ(process.wait().code, 130) << sync;
    EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(20)) << sync;
    EXPECT_EQ(summary_of(folder / "r")["status"], "interrupted");
  }
}

TEST(Recommender, DivergenceIsOneLineAndTheBooksAreClosed) {
  TempFolder folder;
  for (const char* more :
       {"--ranks 1", "--ranks 3", "--ranks 2 --backend virtual", "--ranks 2 --sync async",
        "--ranks 2 --sync hybrid", "--ranks 2 --sync sharded",
        "--ranks 3 --sync async --backend virtual"}) {
    const Outcome outcome = lockstep(small(
        folder / "r", std::string("--lr 1e30 --table-lr 1e30 --bottom 8,8 --overwrite ") + more));
    EXPECT_EQ(outcome.code, 5) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("lower --lr or --table-lr"), std::string::npos) << outcome.err;
    EXPECT_EQ(summary_of(folder / "r")["status"], "diverged");
  }
}

TEST(Recommender, NaNPredictionsAreNotTakenForOneClass) {
  TempFolder folder;
  Words words = small(folder / "r", "--lr 1e30 --table-lr 1e30 --bottom 8,8 --eval-every 1");
  std::erase(words, "--quiet");
  const Outcome outcome = lockstep(words);
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("AUC undefined: a prediction is NaN"), std::string::npos)
      << outcome.err;
}

TEST(Recommender, TablesAloneMayDiverge) {
  TempFolder folder;
  const Outcome outcome =
      lockstep(small(folder / "r", "--lr 0 --table-lr 1e38 --table-optimizer lazy_adam --steps 1"));
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("outside the tables"), std::string::npos) << outcome.err;
}

// What the learning of the defaults is held to.
TEST(SlowRecommender, DefaultsReachFourFifthsOfTheWayToTheBestAuc) {
  TempFolder folder;
  const Outcome outcome =
      lockstep({"train", "recommender", "--quiet", "--eval-every", "0", "--out", folder / "r"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json summary = summary_of(folder / "r"), run = json::parse(slurp(folder / "r/run.json"));
  for (const auto& [name, value] :
       {std::pair{"tables", 8}, {"rows", 2000}, {"steps", 800}, {"global_batch", 512}})
    EXPECT_EQ(run["config"][name], value);
  EXPECT_GE(summary["share_of_best_auc"].get<double>(), 0.8);
  EXPECT_LE(summary["share_of_best_auc"].get<double>(), 1.01);
  EXPECT_LE(summary["log_loss"].get<double>(), 1.15 * summary["best_log_loss"].get<double>());
  std::printf("%.1f %% of the way, log-loss %.4f (best %.4f)\n",
              100 * summary["share_of_best_auc"].get<double>(), summary["log_loss"].get<double>(),
              summary["best_log_loss"].get<double>());
}

}  // namespace
}  // namespace lockstep::test

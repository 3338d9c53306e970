// --on-divergence: back to where all was well, and on with a safer strategy.
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::test {
namespace {

using nlohmann::json;

// Momentum and a delay of sixteen steps: far beyond what is stable, where allreduce still is.
std::vector<std::string> run(const std::string& out, const std::string& more) {
  return words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 --heads 2 "
      "--width 16 --context 16 --batch 8 --steps 300 --ranks 2 --optimizer sgd --momentum 0.9 "
      "--lr 0.5 --warmup 300 --seed 1 --sync delayed:16 --out " +
      out + " " + more);
}

TEST(OnDivergence, StopsWithTheNumericalExitCodeByDefault) {
  TempFolder folder;
  EXPECT_EQ(lockstep(run(folder / "r", "")).code, 5);
  EXPECT_EQ(json::parse(slurp(folder / "r/summary.json"))["status"], "diverged");
}

TEST(OnDivergence, FallsBackToTheLastGoodSnapshotAndSaysSo) {
  for (const std::string backend : {"threads", "virtual"}) {
    TempFolder folder;
    const Outcome outcome =
        lockstep(run(folder / "r", "--on-divergence fallback:allreduce --backend " + backend));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json summary = json::parse(slurp(folder / "r/summary.json"));
    EXPECT_EQ(summary["status"], "finished");
    EXPECT_EQ(summary["steps"], 300);
    EXPECT_LT(summary["val_loss"].get<double>(), 1.2);
    ASSERT_EQ(summary["fallbacks"].size(), 1u);
    EXPECT_EQ(summary["fallbacks"][0]["sync"], "allreduce");
    const int64_t from = summary["fallbacks"][0]["from_step"];
    EXPECT_EQ(from % 25, 0);
    double time = 0;  // modelled time goes on
    if (backend == "virtual") {
      for (const json& line : lines_of(folder / "r/metrics.jsonl")) {
        const double next = line["virtual_s"];
        EXPECT_GT(next, time) << line;
        time = next;
      }
      EXPECT_NEAR(summary["virtual_s"].get<double>(), time, 1e-9);
    }
    EXPECT_NE(outcome.err.find("back to step " + std::to_string(from) + " and on with allreduce"),
              std::string::npos)
        << outcome.err;
  }
}

TEST(OnDivergence, WhatCannotBeFallenBackToIsRefused) {
  TempFolder folder;
  for (const std::string what : {"fallback", "fallback:", "fallback:carrier_pigeon", "go"}) {
    const Outcome outcome = lockstep(run(folder / "x", "--on-divergence " + what));
    EXPECT_EQ(outcome.code, 2) << what;
    EXPECT_NE(outcome.err.find("--on-divergence"), std::string::npos) << outcome.err;
  }
}

// Not only when it is needed.
TEST(OnDivergence, AFallbackThatDoesNotFitTheOtherOptionsIsRefused) {
  TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"--compress int8 --on-divergence fallback:local_sgd",
       "--on-divergence fallback local_sgd sends something else"},
      {"--uneven stop --on-divergence fallback:gossip",
       "under --on-divergence fallback gossip no rank knows"},
      {"--on-divergence fallback:onebit_adam",
       "--on-divergence fallback onebit_adam steps as Adam does"}};
  for (const auto& [options, says] : cases) {
    const Outcome outcome = lockstep(run(folder / "x", options));
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace lockstep::test

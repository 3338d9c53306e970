// `lockstep train … --backend virtual`: real losses under modelled time.
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::test {
namespace {

using nlohmann::json;

std::vector<std::string> tiny(const std::string& out, const std::string& more) {
  return words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 --heads 2 "
      "--width 16 --context 16 --batch 4 --steps 12 --eval-every 6 --seed 3 --quiet --bucket-mb "
      "0.005 --out " +
      out + " " + more);
}

const std::string kCluster = "--backend virtual --cluster compute=100ms,slow=3:1.3,latency=20us";

TEST(VirtualTraining, HasTheBitsOfThreads) {  // promise 2
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "v", "--ranks 4 " + kCluster)).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "t", "--ranks 4 --backend threads")).code, 0);
  EXPECT_TRUE(slurp(folder / "v/model.safetensors") == slurp(folder / "t/model.safetensors"));
  const auto v = lines_of(folder / "v/metrics.jsonl"), t = lines_of(folder / "t/metrics.jsonl");
  ASSERT_EQ(v.size(), t.size());
  for (size_t i = 0; i < v.size(); ++i)
    for (const char* field : {"loss", "samples", "wire_bytes"})
      EXPECT_EQ(v[i][field], t[i][field]) << i << field;
}

TEST(VirtualTraining, OneSlowRankMakesEveryStepAsSlow) {
  TempFolder folder;
  const Outcome outcome = lockstep(tiny(folder / "r", "--ranks 4 " + kCluster));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("% computing"), std::string::npos) << outcome.out;
  const json summary = json::parse(slurp(folder / "r/summary.json"));
  const double seconds = summary["virtual_s"];
  EXPECT_GT(seconds, 12 * 0.130);
  EXPECT_LT(seconds, 12 * 0.135);
  ASSERT_EQ(summary["ranks"].size(), 4u);
  EXPECT_NEAR(summary["ranks"][0]["compute_s"].get<double>(), 1.2, 1e-9);
  EXPECT_NEAR(summary["ranks"][3]["compute_s"].get<double>(), 1.56, 1e-9);
  EXPECT_GT(summary["ranks"][3]["utilisation"].get<double>(), 0.97);
  for (const json& rank : summary["ranks"]) {
    EXPECT_EQ(rank["steps"], 12);
    EXPECT_NEAR(rank["compute_s"].get<double>() + rank["wait_s"].get<double>(), seconds, 1e-9);
    EXPECT_LE(rank["exposed_comm_s"], rank["wait_s"]);
  }
  // Every rank's every step, and the first ones as a trace.
  const auto steps = lines_of(folder / "r/ranks.jsonl");
  ASSERT_EQ(steps.size(), 48u);
  EXPECT_EQ(steps[5]["rank"], 1);
  EXPECT_EQ(steps[5]["step"], 2);
  EXPECT_FALSE(json::parse(slurp(folder / "r/timeline.json"))["traceEvents"].empty());
  const auto metrics = lines_of(folder / "r/metrics.jsonl");
  EXPECT_NEAR(metrics.back()["virtual_s"].get<double>(), seconds, 1e-9);
  EXPECT_GT(metrics[1]["comm_s"].get<double>(), metrics[1]["exposed_comm_s"].get<double>());
}

// Neither the books nor the loss make ranks wait for each other within a round.
TEST(VirtualTraining, LocalRoundsAverageJitterOverARound) {
  TempFolder folder;
  const auto seconds = [&](const std::string& sync) {
    const std::string out = folder / sync;
    const Outcome outcome = lockstep(words_of(
        "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 1 --heads 2 "
        "--width 16 --context 16 --batch 1 --steps 60 --eval-every 10 --seed 3 --quiet --ranks 8 "
        "--backend virtual --cluster compute=100ms,jitter=exponential:0.5,latency=1us --sync " +
        sync + " --out " + out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(slurp(out + "/summary.json"))["virtual_s"].get<double>();
  };
  // Steps of 1.86 and 1.16 times 100 ms on average: strategies_in_time_test.cpp.
  EXPECT_NEAR(seconds("allreduce"), 6 * 1.86, 6 * 0.2);
  EXPECT_NEAR(seconds("local_sgd:20"), 6 * 1.16, 6 * 0.1);
}

// 64 ranks: parameters, gradients and optimiser state of each, and activations of as many as
// compute.
TEST(VirtualTraining, ManyRanksNeedTheActivationsOfTheBusyCoresOnly) {
  TempFolder folder;
  const auto peak = [&](int ranks, double& parameters) {
    const std::string out = folder / std::to_string(ranks);
    const Outcome outcome = lockstep(words_of(
        "train transformer --text synthetic:order=1,letters=4,length=200000 --layers 2 --heads 2 "
        "--width 32 --context 64 --batch 32 --steps 3 --eval-every 0 --seed 3 --quiet --backend "
        "virtual --cluster compute=1ms --ranks " +
        std::to_string(ranks) + " --out " + out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const json summary = json::parse(slurp(out + "/summary.json"));
    parameters = summary["parameters"].get<double>();
    return summary["peak_memory_bytes"].get<double>();
  };
  double parameters = 0;
  const double one = peak(1, parameters), many = peak(64, parameters);
  const double state = 16 * parameters;  // weight, gradient and AdamW's moments
  RecordProperty("one_MB", std::to_string(one / 1e6));
  RecordProperty("many_MB", std::to_string(many / 1e6));
  const double busy = std::thread::hardware_concurrency();
  EXPECT_LT(many, 64 * 1.5 * state + busy * one) << one;
}

TEST(VirtualTraining, RepeatsItsTimesAndKeepsTheMeasuredOne) {
  TempFolder folder;
  const std::string jittery = "--ranks 3 --backend virtual --cluster jitter=lognormal:0.3";
  ASSERT_EQ(lockstep(tiny(folder / "a", jittery)).code, 0);
  const std::string measured = json::parse(slurp(folder / "a/run.json"))["config"]["cluster"];
  EXPECT_EQ(measured.find("measure"), std::string::npos) << measured;
  ASSERT_EQ(lockstep(tiny(folder / "b", "--ranks 3 --backend virtual --cluster " + measured)).code,
            0);
  EXPECT_TRUE(slurp(folder / "a/ranks.jsonl") == slurp(folder / "b/ranks.jsonl"));
}

TEST(VirtualTraining, MeasuresOnDataForTwoBatches) {
  TempFolder folder;
  const Outcome outcome = lockstep(
      words_of("train transformer --text synthetic:order=1,letters=4,length=400 --layers 1 --heads "
               "2 --width 16 --context 16 --batch 170 --steps 3 --eval-every 0 --quiet --ranks 2 "
               "--backend virtual --out " +
               folder / "r"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(VirtualTraining, ClustersThatMakeNoSenseAreRefused) {
  TempFolder folder;
  const std::string none = folder / "x";
  const auto error = [&](const std::string& more) {
    const Outcome outcome = lockstep(tiny(none, more));
    EXPECT_EQ(outcome.code, 2) << more;
    return outcome.err;
  };
  EXPECT_NE(error("--ranks 2 --cluster compute=1ms").find("--backend virtual"), std::string::npos);
  EXPECT_NE(error("--ranks 2 --backend virtual --cluster slow=2:3").find("0..1"),
            std::string::npos);
  EXPECT_NE(error("--ranks 2 --backend virtual --cluster bandwith=1Gbit").find("bandwidth"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::test

#include "tests/apps/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <set>
#include <string>

namespace lockstep::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr int kLayers = 2, kSteps = 12, kWarmUp = 3, kTraced = 5;

Words profiled(const std::string& out, const std::string& more = "") {
  return words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 --heads 2 "
      "--width 16 --context 16 --batch 8 --steps 12 --eval-every 0 --val-fraction 0 --threads 1 "
      "--clip 1 --seed 3 --quiet --profile --out " +
      out + " " + more);
}

// Calls of a kernel in a phase over all steps that count.
int64_t calls(const json& profile, const std::string& name, const std::string& phase) {
  for (const json& row : profile["operations"])
    if (row["name"] == name && row["phase"] == phase) return row["calls"].get<int64_t>();
  return 0;
}

int64_t ns(const json& number) { return std::llround(number.get<double>() * 1e3); }

TEST(Profile, TheTableShowsWhereTheTimeWent) {
  TempFolder folder;
  const Outcome outcome = lockstep(profiled(folder / "r", "--ranks 2"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* text :
       {"profile of rank 0 of 2: 9 steps", "3 before them warmed up", "operation", "self ms",
        "GFLOP/s", "\nmatmul ", "\nattention ", "\nattention_backward ", "\nbackward ",
        "\nforward ", "\noptimizer ", "not in any operation: ", "\nall_reduce ", "/r/trace.json"})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " in\n" << outcome.out;
}

TEST(Profile, CallsOfAStepAreThoseOfTheModel) {
  TempFolder folder;
  const Outcome outcome = lockstep(profiled(folder / "r", "--json --accumulate 2"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json summary = json::parse(outcome.out), profile = summary["profile"];
  EXPECT_EQ(profile["warm_up"], kWarmUp);
  EXPECT_EQ(profile["steps"], kSteps - kWarmUp);
  const int64_t passes = 2 * (kSteps - kWarmUp);  // micro-batches
  EXPECT_EQ(calls(profile, "attention", "forward"), kLayers * passes);
  EXPECT_EQ(calls(profile, "attention_backward", "backward"), kLayers * passes);
  EXPECT_EQ(calls(profile, "attention", "backward"), kLayers * passes);  // the node around it
  EXPECT_EQ(calls(profile, "softmax_cross_entropy", "forward"), passes);
  EXPECT_EQ(calls(profile, "linear", "backward"), (4 * kLayers + 1) * passes);
  EXPECT_EQ(calls(profile, "sum_of_squares", "clip"), kSteps - kWarmUp);
  EXPECT_EQ(calls(profile, "attention", "evaluation"), 0);

  double self = 0, phases = 0;
  for (const json& row : profile["operations"]) {
    EXPECT_GE(row["self_ms"], 0);
    EXPECT_LE(row["self_ms"], row["total_ms"]);
    self += row["self_ms"].get<double>();
  }
  for (const json& row : profile["phases"]) phases += row["total_ms"].get<double>();
  const double total = profile["step_ms"].get<double>() * (kSteps - kWarmUp);
  EXPECT_LE(phases, total * (1 + 1e-9));
  EXPECT_NEAR(self + profile["outside_operations"].get<double>() * total, total, 1e-6 * total);
}

// What every lane of every process does, and that it nests.
TEST(Profile, TheTraceHasAllRanksAndNests) {
  TempFolder folder;
  ASSERT_EQ(lockstep(profiled(folder / "r", "--ranks 2")).code, 0);
  const json trace = json::parse(slurp(folder / "r/trace.json"));
  const double wall_us =
      1e6 * json::parse(slurp(folder / "r/summary.json"))["wall_s"].get<double>();
  std::map<std::pair<int, int>, std::vector<json>> open;  // by process and lane
  std::map<std::pair<int, std::string>, int> count;       // by process and category
  std::set<std::string> steps;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") continue;
    ASSERT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"], 0);
    EXPECT_LE(event["ts"].get<double>() + event["dur"].get<double>(), wall_us);
    auto& stack = open[{event["pid"], event["tid"]}];
    const auto ends = [](const json& e) { return ns(e["ts"]) + ns(e["dur"]); };
    while (!stack.empty() && ends(stack.back()) <= ns(event["ts"]) &&
           !(ends(stack.back()) == ns(event["ts"]) && ns(event["dur"]) == 0))
      stack.pop_back();
    if (!stack.empty()) {
      EXPECT_GE(ns(event["ts"]), ns(stack.back()["ts"]));
      EXPECT_LE(ends(event), ends(stack.back())) << event << " in " << stack.back();
    }
    EXPECT_EQ(event["cat"] == "transfer", event["tid"] != 0);
    if (event["cat"] == "step") steps.insert(event["name"]);
    stack.push_back(event);
    ++count[{event["pid"], event["cat"]}];
  }
  for (const int rank : {0, 1}) {
    EXPECT_EQ((count[{rank, "step"}]), kTraced);
    for (const char* category : {"phase", "kernel", "backward", "collective", "transfer"})
      EXPECT_GT((count[{rank, category}]), kTraced) << category;
  }
  EXPECT_EQ(steps, (std::set<std::string>{"step 4", "step 5", "step 6", "step 7", "step 8"}));
}

TEST(Profile, ProfilingChangesNoBit) {
  TempFolder folder;
  ASSERT_EQ(lockstep(profiled(folder / "with", "--ranks 2")).code, 0);
  Words plain = profiled(folder / "without", "--ranks 2");
  plain.erase(std::find(plain.begin(), plain.end(), "--profile"));
  ASSERT_EQ(lockstep(plain).code, 0);
  EXPECT_EQ(slurp(folder / "with/model.safetensors"), slurp(folder / "without/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "without/trace.json"));
  EXPECT_FALSE(json::parse(slurp(folder / "without/summary.json")).contains("profile"));
}

TEST(Profile, ARunOfOneStepIsProfiledWithoutWarmUp) {
  TempFolder folder;
  Words words = profiled(folder / "r", "--json");
  *(std::find(words.begin(), words.end(), "--steps") + 1) = "1";
  const Outcome outcome = lockstep(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json profile = json::parse(outcome.out)["profile"];
  EXPECT_EQ(profile["warm_up"], 0);
  EXPECT_EQ(profile["steps"], 1);
}

TEST(Profile, EvaluationIsAPhaseOfItsOwn) {
  TempFolder folder;
  Words words = profiled(folder / "r", "--json");
  *(std::find(words.begin(), words.end(), "--val-fraction") + 1) = "0.1";
  const Outcome outcome = lockstep(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json profile = json::parse(outcome.out)["profile"];
  EXPECT_GT(calls(profile, "argmax", "evaluation"), 0);
  EXPECT_EQ(calls(profile, "attention", "forward"), kLayers * (kSteps - kWarmUp));
}

}  // namespace
}  // namespace lockstep::test

// `lockstep train … --sync async|backup`: on a modelled cluster, where it repeats, and in real
// time.
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <map>

namespace lockstep::test {
namespace {

using nlohmann::json;

std::vector<std::string> tiny(const std::string& out, const std::string& more,
                              const std::string& length = "--steps 12 --eval-every 6 ") {
  return words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 1 --heads 2 "
      "--width 16 --context 16 --batch 4 --seed 3 --quiet --ranks 4 " +
      length + " --out " + out + " " + more);
}

const std::string kCluster =
    "--backend virtual --cluster compute=100ms,slow=3:2.5,jitter=lognormal:0.2,latency=20us ";

TEST(Asynchrony, RepeatsOnAModelledClusterAndTellsItsStaleness) {
  TempFolder folder;
  const Outcome outcome = lockstep(tiny(folder / "a", kCluster + "--sync async"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(lockstep(tiny(folder / "b", kCluster + "--sync async")).code, 0);
  EXPECT_TRUE(slurp(folder / "a/model.safetensors") == slurp(folder / "b/model.safetensors"));
  const json summary = summary_of(folder / "a");
  EXPECT_EQ(summary["virtual_s"], summary_of(folder / "b")["virtual_s"]);
  EXPECT_EQ(summary["sync"]["versions"], 48);
  EXPECT_EQ(summary["sync"]["accepted"], 48);
  int64_t gradients = 0;
  for (const json& count : summary["sync"]["histograms"]["staleness"])
    gradients += count.get<int64_t>();
  EXPECT_EQ(gradients, 48);
  EXPECT_TRUE(summary["sync"]["histograms"].contains("staleness.rank.3"));
  EXPECT_NE(outcome.out.find("staleness: 48 in all, mean"), std::string::npos) << outcome.out;
  const auto lines = lines_of(folder / "a/metrics.jsonl");
  EXPECT_FALSE(lines[0].contains("sync"));
  EXPECT_TRUE(lines[5].contains("sync"));
}

TEST(Asynchrony, LookingAtARunChangesNeitherItsBitsNorItsTimes) {
  TempFolder folder;
  for (const std::string sync : {"async", "async:bound=1", "backup:3"}) {
    std::string model;
    double seconds = 0;
    for (const std::string every : {"0", "3", "5"}) {
      const std::string out = folder / (sync.substr(0, 6) + std::to_string(sync.size()) + every);
      const Outcome outcome =
          lockstep(tiny(out, kCluster + "--sync " + sync, "--steps 60 --eval-every " + every));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const double took = summary_of(out)["virtual_s"].get<double>();
      if (every == "0") {
        model = slurp(out + "/model.safetensors");
        seconds = took;
      }
      EXPECT_TRUE(slurp(out + "/model.safetensors") == model) << sync << " " << every;
      EXPECT_EQ(took, seconds) << sync << " " << every;
    }
  }
}

TEST(Asynchrony, BoundZeroIsAllReduce) {
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "a", kCluster + "--sync async:bound=0")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "b", kCluster + "--sync backup:4")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "r", kCluster + "--sync allreduce")).code, 0);
  const std::string model = slurp(folder / "r/model.safetensors");
  EXPECT_TRUE(slurp(folder / "a/model.safetensors") == model);
  EXPECT_TRUE(slurp(folder / "b/model.safetensors") == model);
}

TEST(Asynchrony, ABackupWorkerSavesTheTimeOfTheSlowestAndItsDataIsReported) {
  TempFolder folder;
  ASSERT_EQ(lockstep(tiny(folder / "k", kCluster + "--sync backup:3")).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "r", kCluster + "--sync allreduce")).code, 0);
  const json backup = summary_of(folder / "k"), all = summary_of(folder / "r");
  EXPECT_LT(backup["virtual_s"].get<double>(), 0.7 * all["virtual_s"].get<double>());
  EXPECT_EQ(backup["sync"]["versions"], 12);
  EXPECT_GT(backup["sync"]["late.rank.3"], 0);
  EXPECT_GT(backup["sync"]["skipped.rank.3"], 0);
  EXPECT_EQ(backup["sync"]["lost_weight"],
            backup["sync"]["late"].get<int64_t>() * 4 * 16);  // tokens
}

TEST(Asynchrony, RunsInRealTime) {
  TempFolder folder;
  for (const std::string sync : {"async", "async:bound=1,lr=sqrt,push=share", "backup"}) {
    const std::string out = folder / (sync.substr(0, 6) + std::to_string(sync.size()));
    const Outcome outcome = lockstep(tiny(out, "--backend threads --sync " + sync));
    ASSERT_EQ(outcome.code, 0) << sync << outcome.err;
    const auto lines = lines_of(out + "/metrics.jsonl");
    EXPECT_EQ(lines.back()["step"], 12) << sync;                     // whoever was left behind
    EXPECT_LT(lines.back()["val_loss"].get<double>(), 5.4) << sync;  // from ln 259 = 5.56
    EXPECT_GE(summary_of(out)["sync"]["versions"], 12) << sync;
  }
}

TEST(Asynchrony, ASignalEndsRanksThatGoApart) {
  TempFolder folder;
  for (const std::string sync :
       {"gossip", "gossip:2", "async", "async:bound=1", "backup", "local_sgd:20"})
    for (const std::string backend : {"--backend threads", kCluster.c_str()}) {
      const std::string out = folder / (sync + backend.substr(10, 7));
      Process process(tiny(out, backend + " --sync " + sync, "--steps 1000000 --eval-every 0 "));
      for (int i = 0; i < 500 && slurp(out + "/metrics.jsonl").empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      process.signal(SIGINT);
      const Outcome outcome = process.wait();
      EXPECT_EQ(outcome.code, 130) << sync << backend << outcome.err;
      EXPECT_EQ(summary_of(out)["status"], "interrupted") << sync << backend;
      EXPECT_FALSE(slurp(out + "/model.safetensors").empty()) << sync << backend;
    }
}

// The last step of an epoch has no windows for some of 7 ranks.
TEST(Asynchrony, AShortLastStepOfAnEpochIsNotTheEndOfARanksData) {
  TempFolder folder;
  for (const std::string sync : {"async", "backup:5", "gossip"}) {
    const std::string out = folder / sync.substr(0, 5);
    const Outcome outcome = lockstep(words_of(
        "train transformer --text synthetic:order=1,letters=4,length=400 --layers 1 --heads 2 "
        "--width 16 --context 16 --batch 4 --seed 3 --quiet --ranks 7 --steps 60 --eval-every 0 "
        "--backend virtual --cluster compute=1ms --out " +
        out + " --sync " + sync));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const json& rank : summary_of(out)["ranks"]) EXPECT_EQ(rank["steps"], 60) << sync << rank;
  }
  const Outcome refused =
      lockstep(tiny(folder / "u", "--backend threads --uneven stop --sync async"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--uneven stop: under --sync async"), std::string::npos)
      << refused.err;
}

// What overflows on the wire alone skips the step on all ranks and backs off the loss scale.
TEST(Asynchrony, AWireThatOverflowsIsAsUnderAllReduceWhereTheServiceWaitsForAll) {
  TempFolder folder;
  int number = 0;
  const auto train = [&](const std::string& more, const std::string& sync) {
    const std::string out = folder / std::to_string(++number);
    const Outcome outcome = lockstep(words_of(
        "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 1 --heads 2 "
        "--width 16 --context 16 --batch 4 --seed 3 --quiet --steps 30 --eval-every 0 --wire fp16 "
        "--out " +
        out + " " + more + " --sync " + sync));
    EXPECT_EQ(outcome.code, 0) << more << sync << outcome.err;
    return out;
  };
  for (const std::string more :
       {"--ranks 3 --backend threads --reduce-in wire", "--ranks 2 --backend threads",
        "--ranks 3 --backend virtual --cluster compute=1ms --divide none --precision amp-fp16"}) {
    const std::string all = train(more, "allreduce");
    const std::string ranks = more.substr(8, 1);
    for (const std::string& sync : {std::string("async:bound=0"), "backup:" + ranks}) {
      const std::string out = train(more, sync);
      for (const char* field : {"skipped_steps", "loss_scale"})
        EXPECT_EQ(summary_of(out)[field], summary_of(all)[field]) << more << sync << field;
      EXPECT_TRUE(slurp(out + "/model.safetensors") == slurp(all + "/model.safetensors"))
          << more << sync;
    }
  }
  const json some = summary_of(
      train("--ranks 5 --backend virtual --cluster compute=1ms --reduce-in wire", "backup:4"));
  EXPECT_GT(some["sync"]["versions"], 20);
  EXPECT_LT(some["loss_scale"], 65536);
}

// Rank 0, whose books they are, is the slow one and leaves steps out.
TEST(Asynchrony, WhoIsLeftBehindKeepsToTheScheduleAndEvaluatesAllTheSame) {
  TempFolder folder;
  const std::string more =
      "--backend virtual --cluster compute=100ms,slow=0:2.5,jitter=lognormal:0.1 "
      "--schedule cosine --lr 0.01 --sync ";
  const std::string length = "--steps 60 --eval-every 7 ";
  ASSERT_EQ(lockstep(tiny(folder / "b", more + "backup:3", length)).code, 0);
  ASSERT_EQ(lockstep(tiny(folder / "r", more + "allreduce", length)).code, 0);
  std::map<int64_t, double> rates;
  for (const json& line : lines_of(folder / "r/metrics.jsonl")) rates[line["step"]] = line["lr"];
  int evaluations = 0;
  const auto lines = lines_of(folder / "b/metrics.jsonl");
  EXPECT_LT(lines.size(), 45u);
  for (const json& line : lines) {
    EXPECT_EQ(line["lr"], rates.at(line["step"])) << line;
    evaluations += line.contains("val_loss") ? 1 : 0;
  }
  EXPECT_EQ(evaluations, 60 / 7 + 1);
}

// Only rank 0 evaluates: the other one is long done, and no single step takes as long as that.
TEST(Asynchrony, WhoIsDoneWaitsForTheOthersAsLongAsTheyGoOn) {
  TempFolder folder;
  const Outcome outcome = lockstep(
      words_of("train transformer --text synthetic:order=1,letters=4,length=600000 --layers 1 "
               "--heads 2 --width 32 --context 32 --batch 2 --steps 120 --eval-every 1 "
               "--val-tokens 30000 --timeout 1.5 --quiet --ranks 2 --backend threads --sync async "
               "--out " +
               folder / "r"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(Asynchrony, ADivergedRunHasASummaryWhicheverRankFoundOut) {
  TempFolder folder;
  for (const std::string backend : {"--backend threads", kCluster.c_str()})
    for (const std::string sync : {"async", "backup:3", "gossip"}) {
      const std::string out = folder / (sync + backend.substr(10, 7));
      const Outcome outcome =
          lockstep(tiny(out, backend + " --optimizer sgd --lr 1e9 --sync " + sync));
      EXPECT_EQ(outcome.code, 5) << sync << backend << outcome.err;
      EXPECT_EQ(summary_of(out)["status"], "diverged") << sync << backend;
    }
}

}  // namespace
}  // namespace lockstep::test

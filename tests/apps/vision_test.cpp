// Batch normalisation over ranks and over micro-batches. The oracle is the large batch on one rank.
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"
#include "tests/support/image_bytes.h"

#include "apps/training/snapshots.h"
#include "apps/vision/image_model_file.h"
#include "apps/vision/norm_choice.h"
#include "core/safetensors.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace lockstep::test {
namespace {

using apps::load_image_model;
using nlohmann::json;

// 50 samples: the last of three steps an epoch has two, fewer than ranks. Plain SGD, whose steps
// are as far apart as gradients are.
Outcome train(const std::string& out, const std::string& more) {
  std::vector<std::string> words = words_of(
      "train vision --data synthetic:size=24,samples=50 --width 4 --blocks 1 --steps 9 "
      "--optimizer sgd --lr 0.1 --schedule constant --warmup 0 --eval-every 3 --val-samples 48 "
      "--threads 1 --seed 3 --out " +
      out);
  for (const std::string& word : words_of(more)) {
    const auto same = std::find(words.begin(), words.end(), word);
    if (word.rfind("--", 0) == 0 && same != words.end()) words.erase(same, same + 2);  // more wins
    words.push_back(word);
  }
  return lockstep(words);
}

// Training losses of all steps, then those of the evaluations.
std::vector<double> losses(const std::string& run) {
  std::vector<double> training, held_out;
  for (const json& line : lines_of(run + "/metrics.jsonl")) {
    training.push_back(line["loss"]);
    if (line.contains("val_loss") && !line["val_loss"].is_null())
      held_out.push_back(line["val_loss"]);
  }
  EXPECT_EQ(training.size(), 9u);
  EXPECT_EQ(held_out.size(), 3u);
  training.insert(training.end(), held_out.begin(), held_out.end());
  return training;
}

double largest_difference(const std::string& a, const std::string& b) {
  const std::vector<double> x = losses(a), y = losses(b);
  double largest = 0;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

class Vision : public ::testing::Test {
 protected:
  // The folder of a run that finished.
  std::string run(const std::string& more) {
    const std::string out = folder_ / std::to_string(runs_++);
    const Outcome outcome = train(out, more);
    EXPECT_EQ(outcome.code, 0) << more << ": " << outcome.err;
    return out;
  }
  // How far the curves of two runs are from each other.
  double apart(const std::string& a, const std::string& b) {
    return largest_difference(run(a), run(b));
  }
  TempFolder folder_;
  int runs_ = 0;
};

constexpr double kRounding = 2e-6;

// Three steps an epoch, the last of which leaves ranks without an image.
TEST_F(Vision, RanksWithSyncBatchNormAreOneRankWithTheWholeBatch) {
  const std::string one = run("--batch 24");
  for (const std::string ranks : {"--ranks 2 --batch 12", "--ranks 3 --batch 8",
                                  "--ranks 4 --batch 6", "--ranks 4 --batch 6 --backend virtual"}) {
    const std::string several = run("--norm sync_batch " + ranks);
    EXPECT_LT(largest_difference(one, several), kRounding) << ranks;
    // Statistics, too.
    const auto a = load_image_model(one), b = load_image_model(several);
    const auto x = a->buffers(), y = b->buffers();
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i].slot->dtype() == DType::f32) {
        EXPECT_TRUE(testing::near(*x[i].slot, *y[i].slot, 1e-4)) << x[i].name;
      } else {
        EXPECT_EQ(x[i].slot->item(), y[i].slot->item()) << x[i].name;
      }
  }
  EXPECT_GT(largest_difference(one, run("--ranks 4 --batch 6")), 1000 * kRounding);
}

TEST_F(Vision, SyncBatchNormHoldsInMixedPrecision) {
  for (const std::string precision : {" --precision amp-bf16", " --precision amp-fp16"}) {
    const std::string one = run("--batch 24" + precision);
    EXPECT_LT(largest_difference(one, run("--norm sync_batch --ranks 4 --batch 6" + precision)),
              2e-3)
        << precision;
    EXPECT_GT(largest_difference(one, run("--ranks 4 --batch 6" + precision)), 5e-3) << precision;
  }
}

// Claim B3b: SyncBN mends the split over ranks, not the one over time; frozen statistics mend both.
TEST_F(Vision, AccumulationIsTheLargeBatchWithFrozenStatisticsOnly) {
  const std::string start = run("--batch 24");
  const auto accumulated = [&](const std::string& norm, const std::string& split) {
    return apart("--batch 24 --norm " + norm, split + " --norm " + norm);
  };
  const std::string from = " --init " + start;
  for (const std::string split :
       {"--batch 6 --accumulate 4", "--batch 3 --accumulate 4 --ranks 2"}) {
    EXPECT_LT(accumulated("frozen_batch" + from, split), kRounding) << split;
    EXPECT_LT(accumulated("group --groups 2", split), kRounding) << split;
    EXPECT_LT(accumulated("none", split), kRounding) << split;
    const double batch = accumulated("batch" + from, split);
    const double sync = accumulated("sync_batch" + from, split);
    RecordProperty("margin of batch", std::to_string(batch));
    RecordProperty("margin of sync_batch", std::to_string(sync));
    EXPECT_GT(batch, 1000 * kRounding) << split;
    EXPECT_GT(sync, 1000 * kRounding) << split;
  }
  for (const std::string precision : {" --precision amp-bf16", " --precision amp-fp16"})
    EXPECT_LT(accumulated("frozen_batch" + from + precision, "--batch 6 --accumulate 4"), 2e-3)
        << precision;
}

// All ranks go on from the average of what they have seen until then.
TEST_F(Vision, StatisticsOfRanksAreMadeEqualBeforeTheyAreFrozen) {
  const std::string batch = run("--norm batch --ranks 2 --batch 12"),
                    late = run("--norm frozen_batch:after=8 --ranks 2 --batch 12");
  for (size_t step = 0; step < 9; ++step)  // the same run until then
    EXPECT_EQ(losses(batch)[step] == losses(late)[step], step < 8) << step;
  const auto outcome =
      train(folder_ / "f", "--norm frozen_batch:after=4 --ranks 2 --batch 12 --steps 12");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string shorter = folder_ / "s";
  EXPECT_EQ(train(shorter, "--norm batch --ranks 2 --batch 12 --steps 4 --eval-every 0").code, 0);
  const auto a = load_image_model(folder_ / "f"), b = load_image_model(shorter);
  const auto x = a->buffers(), y = b->buffers();
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].slot->dtype() == DType::f32) {
      EXPECT_EQ(values<float>(*x[i].slot), values<float>(*y[i].slot)) << x[i].name;
    }
}

TEST_F(Vision, AccumulationWithBatchStatisticsIsWarnedOf) {
  const auto warning = [&](const std::string& more) {
    const std::string out = folder_ / "w";
    const Outcome outcome = train(out, more + " --steps 2 --overwrite");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const json summary = summary_of(out);
    const std::string text = summary.value("warning", "");
    EXPECT_EQ(outcome.err.find("warning: batch norm") != std::string::npos ||
                  outcome.err.find("warning: in the first") != std::string::npos,
              !text.empty());
    return text;
  };
  EXPECT_NE(warning("--batch 6 --accumulate 4"), "");
  EXPECT_NE(warning("--batch 6 --accumulate 4 --quiet"), "");
  EXPECT_NE(warning("--batch 6 --accumulate 2 --ranks 2 --norm sync_batch"), "");
  EXPECT_NE(warning("--batch 6 --accumulate 4 --norm frozen_batch:after=1"), "");
  EXPECT_EQ(warning("--batch 24"), "");
  EXPECT_EQ(warning("--batch 6 --ranks 4 --norm sync_batch"), "");
  EXPECT_EQ(warning("--batch 6 --accumulate 4 --norm group --groups 2"), "");
  const std::string start = run("--batch 24");
  EXPECT_EQ(warning("--batch 6 --accumulate 4 --norm frozen_batch --init " + start), "");
}

TEST_F(Vision, FreezingStatisticsThatNoBatchHasMadeIsWarnedOf) {
  const auto warned = [&](const std::string& more) {
    const std::string out = run(more);
    return summary_of(out).value("warning", "").find("nothing is normalised") != std::string::npos;
  };
  const std::string start = run("--batch 24");
  EXPECT_TRUE(warned("--batch 24 --norm frozen_batch:after=0"));
  EXPECT_FALSE(warned("--batch 24 --norm frozen_batch"));  // one step of nine comes first
  EXPECT_FALSE(warned("--batch 24 --norm frozen_batch:after=1"));
  EXPECT_FALSE(warned("--batch 24 --norm frozen_batch --init " + start));
}

// Its collectives are within forward and backward: nothing hides them.
TEST_F(Vision, SyncBatchNormTakesItsTimeOnAModelledClusterAndCountsItsBytes) {
  const std::string cluster =
      " --ranks 2 --batch 12 --backend virtual --cluster "
      "compute=100ms,latency=500us,bandwidth=1Gbit";
  const json batch = summary_of(run("--norm batch" + cluster)),
             sync = summary_of(run("--norm sync_batch" + cluster));
  const double steps = 9, calls = 2 * 9;  // nine norms, forward and backward, each 0.5 ms at least
  EXPECT_GT(sync["virtual_s"].get<double>() - batch["virtual_s"].get<double>(),
            steps * calls * 500e-6);
  EXPECT_LT(sync["virtual_s"].get<double>() - batch["virtual_s"].get<double>(),
            steps * calls * 1500e-6);
  EXPECT_GT(sync["wire_bytes"].get<int64_t>(), batch["wire_bytes"].get<int64_t>());
  EXPECT_NEAR(sync["ranks"][0]["compute_s"].get<double>(), steps * 0.1, 1e-9);
}

TEST_F(Vision, StrategiesWhoseRanksGoApartTrainWithBatchNorm) {
  for (const std::string sync :
       {"async", "gossip", "backup:keep=1", "local_sgd:every=2", "delayed", "powersgd"}) {
    const Outcome outcome = train(folder_ / sync, "--ranks 2 --batch 12 --sync " + sync);
    EXPECT_EQ(outcome.code, 0) << sync << ": " << outcome.err;
  }
  for (const std::string more :
       {"--norm sync_batch --sync async", "--norm frozen_batch:after=2 --sync gossip",
        "--norm sync_batch --sync backup:keep=1",
        "--norm sync_batch --on-divergence fallback:async"}) {
    const Outcome outcome = train(folder_ / "x", "--ranks 2 --batch 12 " + more);
    EXPECT_EQ(outcome.code, 2) << more;
    EXPECT_NE(outcome.err.find("ranks do not wait for each other"), std::string::npos)
        << outcome.err;
  }
}

TEST_F(Vision, AFallBackTakesTheStatisticsAlong) {
  using apps::ResidualNet;
  const apps::ResidualNetConfig config{.width = 4, .blocks = 1};
  ResidualNet model(config, 1), other(config, 2);
  optim::FlatParams params(model), others(other);
  const auto optimizer = optim::make_optimizer("adamw", params.all(), {});
  const auto other_optimizer = optim::make_optimizer("adamw", others.all(), {});
  optim::GradScaler scaler, other_scaler;
  model.loss_sum(testing::randn({2, 3, 8, 8}, 1), from_values<int32_t>({1, 2}));  // moves them
  apps::Snapshots snapshots;
  snapshots.after_step(0, 0, 1, *optimizer, scaler, model);
  ASSERT_NE(snapshots.good(), nullptr);
  apps::restore_weights(*snapshots.good(), others);
  apps::restore_rest(*snapshots.good(), *other_optimizer, other_scaler, other);
  const Tensor images = testing::randn({2, 3, 8, 8}, 2);
  model.set_mode(layers::Module::Mode::evaluate);
  other.set_mode(layers::Module::Mode::evaluate);
  EXPECT_EQ(values<float>(model.logits(images)), values<float>(other.logits(images)));

  const std::string out = folder_ / "r";
  const Outcome outcome = train(
      out,
      "--ranks 2 --batch 12 --steps 120 --eval-every 0 --sync delayed:8 --momentum 0.9 --lr 8 "
      "--warmup 100 --norm none --on-divergence fallback:allreduce");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(summary_of(out)["fallbacks"].size(), 1u);
}

TEST_F(Vision, MistakesAreOneLine) {
  const struct {
    std::string more, says;
    int code = 2;
  } cases[] = {
      {"--norm bat", "did you mean batch?"},
      {"--norm batch:after=3", "after"},
      {"--norm frozen_batch:after=-1", "after"},
      {"--norm frozen_batch:after=9", "fewer than --steps 9"},
      {"--norm group --groups 3", "--groups 3 does not divide --width 4"},
      {"--groups 2", "--norm group"},
      {"--init /nonexistent", "No such file", 3},
      {"--width 0", "--width"},
      {"--data cifar11:x", "cifar10"},
      {"--data cifar10:/nonexistent", "/nonexistent", 3},
      {"--ranks 3", "at most the 50"},
      {"--val-fraction 0.2", "idx"},
      {"--width 65536 --blocks 10000", "out of memory", 4},
      {"--compress topk+ef --sync local_sgd", "sends something else"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = train(folder_ / "x", "--batch 24 " + c.more);
    EXPECT_EQ(outcome.code, c.code) << c.more << ": " << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(c.says), std::string::npos) << c.more << ": " << outcome.err;
  }
}

TEST_F(Vision, AModelOfAnotherConfigurationIsNoBeginning) {
  const std::string start = run("--batch 24");
  for (const std::string more : {"--norm group --groups 2", "--width 8", "--blocks 2",
                                 "--data synthetic:classes=5,size=24,samples=50"}) {
    const Outcome outcome = train(folder_ / "x", "--batch 24 --init " + start + " " + more);
    EXPECT_EQ(outcome.code, 3) << more;
    EXPECT_NE(outcome.err.find("a model of another configuration"), std::string::npos)
        << outcome.err;
  }
}

TEST_F(Vision, StatisticsThatNoTrainingLeavesAreNoBeginning) {
  const std::string path = run("--batch 24") + "/model.safetensors", changed = folder_ / "changed";
  const SafetensorsReader file(path);
  const auto complaint = [&](const std::string& name, const auto value) {
    std::vector<NamedTensor> tensors;
    for (const auto& entry : file.entries())
      tensors.push_back(
          {entry.name, entry.name == name
                           ? full(entry.shape, static_cast<double>(value), entry.dtype)
                           : file.read(entry.name)});
    write_safetensors(changed, tensors, file.metadata());
    const Outcome outcome = train(folder_ / "x", "--batch 24 --init " + changed);
    EXPECT_EQ(outcome.code, 3) << name << " " << value;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    return outcome.err;
  };
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string norm = "blocks.1.second.norm.";
  says(complaint(norm + "running_mean", INFINITY), norm + "running_mean; expected finite values");
  says(complaint(norm + "running_var", NAN), norm + "running_var; expected finite values");
  says(complaint(norm + "running_var", -0.5), norm + "running_var; expected at least 0");
  says(complaint(norm + "num_batches_tracked", -1), "expected counts");
  says(complaint(norm + "num_batches_tracked", std::exp2(62)), "expected counts");
  says(complaint("head.bias", NAN), "head.bias; expected finite values");
}

TEST_F(Vision, TrainsOnFilesOfBothFormats) {
  std::string batch;
  for (int64_t i = 0; i < 20; ++i) batch += cifar_record(static_cast<uint8_t>(i % 10), i);
  for (int i = 1; i <= 5; ++i) spill(folder_ / ("data_batch_" + std::to_string(i) + ".bin"), batch);
  spill(folder_ / "test_batch.bin", batch);
  spill(folder_ / "images", idx_bytes({40, 28, 28}, noise_bytes(40 * 28 * 28)));
  std::string labels;
  for (int i = 0; i < 40; ++i) labels += static_cast<char>(i % 10);
  spill(folder_ / "labels", idx_bytes({40}, labels));
  for (const std::string& data :
       std::vector<std::string>{"cifar10:" + folder_.path(),
                                "idx:" + (folder_ / "images") + "," + (folder_ / "labels")}) {
    const std::string out = folder_ / data.substr(0, 3);
    const Outcome outcome = lockstep(words_of(
        "train vision --width 4 --blocks 1 --steps 3 --batch 4 --ranks 2 --threads 1 --data " +
        data + " --out " + out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_FALSE(summary_of(out)["val_accuracy"].is_null());
    EXPECT_EQ(outcome.out.find("best possible"), std::string::npos);
  }
}

// With its defaults. How long that takes on an idle machine is in docs/vision.md.
TEST(SlowVision, ComesWithinTwoPointsOfTheBestPossibleAccuracy) {
  TempFolder folder;
  const Outcome outcome = lockstep(
      words_of("train vision --quiet --eval-every 0 --val-samples 4096 --threads 2 --out " +
               (folder / "r")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json summary = summary_of(folder / "r");
  EXPECT_EQ(summary["steps"], 1000);
  EXPECT_GT(summary["val_accuracy"].get<double>(),
            summary["best_possible_accuracy"].get<double>() - 0.02);
  RecordProperty("seconds", std::to_string(summary["wall_s"].get<double>()));
}

TEST_F(Vision, ImagesThatAreNotSquareAreRefused) {
  spill(folder_ / "images", idx_bytes({40, 28, 20}, noise_bytes(40 * 28 * 20)));
  spill(folder_ / "labels", idx_bytes({40}, std::string(40, '\1')));
  const Outcome outcome = train(
      folder_ / "x", "--batch 4 --data idx:" + (folder_ / "images") + "," + (folder_ / "labels"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("expected square images, got 28 x 20"), std::string::npos)
      << outcome.err;
}

TEST(NormChoice, SaysWhatWasMeant) {
  using apps::NormChoice;
  EXPECT_EQ(NormChoice::parse("frozen_batch", 100).after, 100);
  EXPECT_EQ(NormChoice::parse("frozen_batch:after=7", 100).to_string(), "frozen_batch:after=7");
  for (const std::string name : {"batch", "sync_batch", "group", "none"})
    EXPECT_EQ(NormChoice::parse(name, 100).to_string(), name);
}

}  // namespace
}  // namespace lockstep::test

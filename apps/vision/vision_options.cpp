#include "apps/vision/vision_options.h"

#include "apps/report/machine.h"
#include "core/check.h"
#include "core/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

namespace lockstep::apps {
namespace {

const RunOptions::Words kWords{.samples = "images", .seeded = "of weights and data order"};

}  // namespace

VisionOptions::VisionOptions() {
  batch = 64;
  steps = 1000;
  lr = 3e-3;
  schedule = "cosine";
  warmup = 50;
  weight_decay = 0.05;
}

void VisionOptions::declare(OptionTable& t) {
  t.group("model");
  t.integer("--width", width, {1, 65536}, "channels of the first of three stages");
  t.integer("--blocks", blocks, {1, 10000}, "residual blocks of a stage");
  t.text("--norm", norm, "SPEC",
         "batch, sync_batch, frozen_batch[:after=N], group or none; --norm help");
  t.integer("--groups", groups, {1, 65536}, "of --norm group; a divisor of the width");
  t.text("--init", init, "DIR", "begin with the model of another run, or of a file");
  t.group("data");
  t.text("--data", data, "SPEC", "synthetic, idx:IMAGES,LABELS or cifar10:DIR; --data help");
  t.number("--val-fraction", val_fraction, {0, 0.9, ""},
           "of the images of idx:IMAGES,LABELS, kept for validation");
  t.integer("--val-samples", val_samples, {0, 1'000'000'000},
            "evaluate on the first N held-out images, 0: all");
  t.integer("--eval-every", eval_every, {0, kMaxSteps},
            "steps between evaluations, 0: only at the end");
  declare_training(t, kWords);
  declare_moments(t);
  precision.declare(t);
  declare_ranks(t);
  declare_on_divergence(t);
  declare_output(t);
  t.lists("--data", image_data_help);
  t.lists("--norm", norm_help);
}

void VisionOptions::resolve(const OptionTable& given) {
  const std::string kind = image_data_kind(data);
  check(!given.given("--val-fraction") || kind == "idx",
        "--val-fraction: expected --data idx:IMAGES,LABELS beside it, got {}", data);
  const NormChoice choice = norm_choice();
  norm = choice.to_string();
  check(choice.after < steps, "--norm {}: expected fewer than --steps {}, or nothing is frozen",
        norm, steps);
  check(!given.given("--groups") || choice.kind == NormChoice::Kind::group,
        "--groups: expected --norm group beside it, got {}", norm);
  check(choice.kind != NormChoice::Kind::group || width % groups == 0,
        "--norm group: --groups {} does not divide --width {}; try --groups {}", groups, width,
        std::gcd(groups, width));
  if (!given.given("--warmup")) warmup = std::min(warmup, steps / 10);
  check_config(model({}));
  RunOptions::resolve(given, kWords);
  for (const auto& [option, spec] : strategies()) choice.expect_fits(option, spec);
}

void VisionOptions::resolve(const data::ImageDataset& source) const {
  const data::ImageSchema& schema = source.schema();
  check(schema.height == schema.width, "--data {}: expected square images, got {} x {}", data,
        schema.height, schema.width);
  check(global_batch <= source.samples(),
        "--batch {} x --ranks {} x --accumulate {} = {} images a step; expected at most the {} of "
        "the training data; lower --batch",
        batch, ranks, accumulate, global_batch, source.samples());
}

void VisionOptions::check_memory(const data::ImageSchema& schema) const {
  const ResidualNetConfig config = model(schema);
  const auto p = static_cast<double>(parameter_count(config));
  // At the least: what backward needs of the convolutions, two a block, of three stages of which
  // each has half as many values as the one before.
  const double values = static_cast<double>(batch) * static_cast<double>(schema.height) *
                        static_cast<double>(schema.width) * static_cast<double>(width) *
                        (2.0 * static_cast<double>(blocks) * 1.75 + 1);
  const auto at_once = static_cast<double>(
      on_virtual_cluster() ? std::min<int64_t>(ranks, available_cores()) : ranks);
  const double need = static_cast<double>(ranks) * 8 * p + at_once * 4 * values;
  const auto have = static_cast<double>(memory_bytes());
  if (need > have)
    throw SystemError(
        Fault::device,
        fmt::format("out of memory: {:.4g} parameters and {} images of {} x {} a micro-batch on {} "
                    "rank(s) need at least {:.3g} GB; expected at most {:.3g} GB; lower --width, "
                    "--blocks or --batch",
                    p, batch, schema.height, schema.width, ranks, 1e-9 * need, 1e-9 * have));
}

ImageDataOptions VisionOptions::image_data() const {
  return {.spec = data, .val_fraction = val_fraction, .val_samples = val_samples};
}

ResidualNetConfig VisionOptions::model(const data::ImageSchema& schema) const {
  ResidualNetConfig config{.width = width, .blocks = blocks, .norm = norm_choice().layer()};
  if (schema.classes > 0) config.classes = schema.classes;
  if (schema.pixels() > 0) config.channels = schema.channels;
  if (config.norm == ResidualNetConfig::Norm::group) config.groups = groups;
  return config;
}

}  // namespace lockstep::apps

#pragma once
#include "apps/training/run_options.h"
#include "apps/vision/image_data.h"
#include "apps/vision/norm_choice.h"
#include "apps/vision/residual_net.h"

#include <algorithm>

namespace lockstep::apps {

/// What `lockstep train vision` can be told, with its defaults.
struct VisionOptions : RunOptions {
  VisionOptions();
  // model
  int64_t width = 16, blocks = 3, groups = 8;
  std::string norm = "batch", init;
  // data
  std::string data = "synthetic";
  double val_fraction = 0.1;
  int64_t val_samples = 2048, eval_every = 250;

  void declare(OptionTable& table);
  /// As RunOptions does, with what only this app has.
  void resolve(const OptionTable& given);
  /// Whether the data suffice. UsageError.
  void resolve(const data::ImageDataset& source) const;
  /// SystemError(device) for a model that this machine surely cannot hold.
  void check_memory(const data::ImageSchema& schema) const;

  ImageDataOptions image_data() const;
  NormChoice norm_choice() const { return NormChoice::parse(norm, init.empty() ? std::max<int64_t>(1, steps / 10) : 0); }
  ResidualNetConfig model(const data::ImageSchema& schema) const;
};

}  // namespace lockstep::apps

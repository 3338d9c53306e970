#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "apps/cli/option_table.h"
#include "apps/training/precision_options.h"
#include "apps/transformer/gpt.h"
#include "distributed/reducer.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace lockstep::apps {

/// What `lockstep train transformer` can be told, with its defaults.
struct TrainOptions {
  // model
  int64_t layers = 4, heads = 4, width = 128, context = 64;
  bool bias = true;
  std::string gelu = "tanh";
  double dropout = 0;
  // data
  std::string text, vocab = "byte";
  double val_fraction = 0.1;
  int64_t val_tokens = 65536;
  int64_t eval_every = 250;
  // training
  int64_t batch = 12, global_batch = 0, accumulate = 1, steps = 2000;
  std::string optimizer = "adamw", schedule = "constant";
  double lr = 1e-3, min_lr = 0, eps = 1e-8, momentum = 0, weight_decay = 0.01, clip = 0;
  bool nesterov = false;
  std::array<double, 2> betas{0.9, 0.999};
  int64_t warmup = 0;
  int64_t seed = 1;
  // ranks and synchronisation
  int64_t ranks = 1, threads = 0;
  std::string backend = "auto", cluster, sync = "allreduce";
  double timeout = 60, bucket_mb = 1;
  std::string unused = "zero", uneven = "active", teach = "none", on_divergence = "stop";
  PrecisionOptions precision;
  // output
  std::string out;
  bool overwrite = false, json = false, quiet = false, profile = false;

  void declare(OptionTable& table);
  /// Fills in what follows from other options (batch or accumulate, global_batch, threads, backend,
  /// weight decay, precision)
  /// and checks what a single option cannot; UsageError.
  void resolve(const OptionTable& given);
  bool on_virtual_cluster() const { return backend.rfind("virtual", 0) == 0; }
  /// SystemError(device) for a model that this machine surely cannot hold.
  void check_memory(int64_t vocabulary) const;

  GptConfig model(int64_t vocabulary) const;
  optim::OptimizerOptions optimizer_options() const;
  optim::Schedule learning_rate() const;
  distributed::ReducerOptions reducer_options() const;
};

}  // namespace lockstep::apps

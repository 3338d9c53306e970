#pragma once
#include <cstdint>
#include <string>

#include "apps/training/run_options.h"
#include "apps/transformer/gpt.h"

namespace lockstep::apps {

/// What `lockstep train transformer` can be told, with its defaults.
struct TrainOptions : RunOptions {
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

  void declare(OptionTable& table);
  /// As RunOptions does, with what only this app has.
  void resolve(const OptionTable& given);
  /// SystemError(device) for a model that this machine surely cannot hold.
  void check_memory(int64_t vocabulary) const;

  GptConfig model(int64_t vocabulary) const;
};

}  // namespace lockstep::apps

#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/transformer/gpt.h"
#include "apps/transformer/language_data.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

/// Gradients of a small GPT's loss as it begins, in this process, in fp32.
class GptGradients {
 public:
  struct Options {
    std::string text;  ///< a file or synthetic
    int64_t layers = 1, width = 32, context = 16;
    uint64_t seed = 1;  ///< of weights and of the order of windows
  };
  explicit GptGradients(const Options& options);

  /// Of the mean loss over the tokens of windows first … first + count - 1 of the epoch's order.
  std::vector<float> mean(int64_t first, int64_t count);
  int64_t size() const { return params_.all().numel(); }
  std::span<const optim::ParamSlice> tensors() const { return params_.slices(); }
  int64_t windows() const { return data_.training->count(); }

 private:
  LanguageData data_;
  uint64_t seed_;
  Gpt model_;
  optim::FlatParams params_;
};

double norm_of(std::span<const float> values);
/// ‖a - b‖ / ‖b‖
double relative_difference(std::span<const float> a, std::span<const float> b);

}  // namespace lockstep::apps

#include "apps/compare/claims/gpt_gradients.h"

#include "autograd/graph.h"
#include "core/check.h"
#include "core/random.h"

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

constexpr int64_t kHeadWidth = 16;

LanguageData load(const GptGradients::Options& o) {
  return load_language_data(
      {.text = o.text, .vocab = "byte", .context = o.context, .val_fraction = 0});
}

GptConfig config_of(const GptGradients::Options& o, int64_t vocab) {
  return {.vocab = vocab,
          .layers = o.layers,
          .heads = std::max<int64_t>(o.width / kHeadWidth, 1),
          .width = o.width,
          .context = o.context};
}

}  // namespace

GptGradients::GptGradients(const Options& o)
    : data_(load(o)),
      seed_(o.seed),
      model_(config_of(o, data_.tokenizer->vocab()), o.seed),
      params_(model_) {}

std::vector<float> GptGradients::mean(int64_t first, int64_t count) {
  check(first >= 0 && count > 0 && first + count <= windows(),
        "[compare.gradients] windows {} to {}; expected some of {}", first, first + count,
        windows());
  const Permutation order(static_cast<uint64_t>(windows()),
                          Random(seed_, RandomStream::data_order));
  const int64_t context = model_.config().context;
  data::TokenBatch batch{.inputs = Tensor::empty({count, context}, DType::i32),
                         .targets = Tensor::empty({count, context}, DType::i32)};
  for (int64_t row = 0; row < count; ++row)
    data_.training->copy_to(static_cast<int64_t>(order(static_cast<uint64_t>(first + row))), batch,
                            row);
  const Tensor& grad = params_.all().grad;
  float* const sums = grad.mutable_data<float>();
  std::fill_n(sums, size(), 0.0f);  // what lands is added to it, or replaces it
  autograd::backward(model_.loss_sum(batch.inputs, batch.targets));
  const auto* const landed = grad.data<float>();
  std::vector<float> mean(landed, landed + size());
  for (float& value : mean) value /= static_cast<float>(count * context);
  return mean;
}

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return std::sqrt(squares);
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    squares += difference * difference;
  }
  return std::sqrt(squares) / norm_of(b);
}

}  // namespace lockstep::apps

#include "apps/transformer/sampling.h"

#include "core/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::apps {

int32_t choose_token(std::span<const float> logits, const TokenChoice& choice, double u) {
  const auto n = static_cast<int64_t>(logits.size());
  for (const float logit : logits)
    if (std::isnan(logit) || logit == INFINITY)
      throw SystemError(Fault::numeric,
                        "the model's logits are not finite; it diverged in training");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const int64_t kept = choice.temperature == 0 ? 1
                       : choice.top_k > 0      ? std::min(choice.top_k, n)
                                               : n;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  order.resize(static_cast<size_t>(kept));
  const double highest = logits[static_cast<size_t>(order[0])];
  if (!std::isfinite(highest))
    throw SystemError(Fault::numeric, "no token is possible: all logits are -inf");
  if (kept == 1) return order[0];
  double total = 0;
  std::vector<double> upto;
  for (const int32_t i : order)
    upto.push_back(total +=
                   std::exp((logits[static_cast<size_t>(i)] - highest) / choice.temperature));
  const auto chosen = std::upper_bound(upto.begin(), upto.end(), u * total) - upto.begin();
  return order[static_cast<size_t>(std::min<int64_t>(chosen, kept - 1))];
}

int32_t next_token(const Gpt& model, const std::vector<int32_t>& text, const TokenChoice& choice,
                   double u) {
  const auto seen = std::min<int64_t>(model.config().context, static_cast<int64_t>(text.size()));
  const std::vector<int32_t> tail(text.end() - seen, text.end());
  const Tensor logits = model.logits(from_values(tail, {1, seen}));
  const int64_t vocab = model.config().vocab;
  return choose_token({logits.data<float>() + (seen - 1) * vocab, static_cast<size_t>(vocab)},
                      choice, u);
}

}  // namespace lockstep::apps

#pragma once
#include <span>
#include <vector>

#include "apps/transformer/gpt.h"

namespace lockstep::apps {

struct TokenChoice {
  double temperature = 1;  ///< logits are divided by it; 0: always the likeliest
  int64_t top_k = 0;       ///< among the k likeliest only; 0: among all
};

/// An index of `logits`, by the number u in [0, 1): the same u gives the same choice. Ties for the
/// k-th place go to lower indices. SystemError(numeric) when a logit is NaN or all are -inf.
int32_t choose_token(std::span<const float> logits, const TokenChoice& choice, double u);

/// The token after `text`, of which the model sees its last `context` ones.
int32_t next_token(const Gpt& model, const std::vector<int32_t>& text, const TokenChoice& choice,
                   double u);

}  // namespace lockstep::apps

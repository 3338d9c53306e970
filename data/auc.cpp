#include "data/auc.h"

#include "core/check.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {

void Auc::add(std::span<const float> scores, std::span<const float> labels) {
  check(scores.size() == labels.size(), "[data.auc] labels; expected as many as scores, {}, got {}",
        scores.size(), labels.size());
  for (const float label : labels)
    check(label == 0 || label == 1, "[data.auc] label; expected 0 or 1, got {}", label);
  for (size_t i = 0; i < scores.size(); ++i)
    (labels[i] == 1 ? positives_ : negatives_).push_back(scores[i]);
}

void Auc::merge(std::span<const float> positives, std::span<const float> negatives) {
  positives_.insert(positives_.end(), positives.begin(), positives.end());
  negatives_.insert(negatives_.end(), negatives.begin(), negatives.end());
}

std::optional<double> Auc::value() {
  if (positives_.empty() || negatives_.empty()) return std::nullopt;
  const auto nan = [](float x) { return std::isnan(x); };
  if (std::ranges::any_of(positives_, nan) || std::ranges::any_of(negatives_, nan))
    return std::nullopt;
  std::ranges::sort(positives_);
  std::ranges::sort(negatives_);
  // Twice the wins of the positives, so that a tie is one. 128 bits: P·N may exceed 2^63.
  unsigned __int128 wins = 0;
  size_t below = 0, up_to = 0;  // negatives below the score, and not above it
  for (const float score : positives_) {
    while (below < negatives_.size() && negatives_[below] < score) ++below;
    while (up_to < negatives_.size() && negatives_[up_to] <= score) ++up_to;
    wins += below + up_to;
  }
  const auto pairs = static_cast<unsigned __int128>(positives_.size()) * negatives_.size();
  return static_cast<double>(wins) / static_cast<double>(2 * pairs);
}

}  // namespace lockstep::data

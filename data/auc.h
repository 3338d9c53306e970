#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::data {

/// Area under the ROC curve: the probability that a positive scores higher than a negative, a tie
/// counting one half (Hanley & McNeil 1982; the Mann-Whitney statistic divided by P·N).
///
/// It keeps the scores, 4 bytes a sample, and counts in integers. So the value depends on the
/// scores only, not on their order: ranks that send each other positives() and negatives() all find
/// the bits that one rank with all samples finds. A mean of the ranks' own AUCs is another number.
class Auc {
 public:
  /// Scores are logits (or anything increasing in them: probabilities in f32 tie where logits do
  /// not). Labels are 0 or 1. UsageError for other labels and unequal sizes.
  void add(std::span<const float> scores, std::span<const float> labels);
  /// What positives() and negatives() of another hold.
  void merge(std::span<const float> positives, std::span<const float> negatives);
  void merge(const Auc& other) { merge(other.positives_, other.negatives_); }

  /// In any order.
  std::span<const float> positives() const { return positives_; }
  std::span<const float> negatives() const { return negatives_; }
  /// Nothing where it is undefined: one class only, or a score that is NaN. Sorts the scores.
  std::optional<double> value();

 private:
  std::vector<float> positives_, negatives_;
};

}  // namespace lockstep::data

#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::data {

/// Whether predicted probabilities mean what they say: samples in bins of equal width, each with
/// its number of samples, its positives and the sum of its probabilities.
///
/// Everything kept is an integer (probabilities count in units of 2^-32), so ranks that add up
/// their sums() find the bits that one rank finds. At most 2^31 samples.
class Calibration {
 public:
  /// 1 … 10,000 bins.
  explicit Calibration(int bins = 10);
  /// Bin b of n holds probabilities in [b/n, (b+1)/n), the last one 1, too. Labels 0 or 1.
  /// UsageError for other labels and for probabilities outside [0, 1].
  void add(double probability, double label);
  /// As probabilities of logits.
  void add(std::span<const float> logits, std::span<const float> labels);

  /// For each bin: samples, positives, probabilities. Ranks add these element by element.
  std::span<const int64_t> sums() const { return sums_; }
  /// Adds another's sums().
  void merge(std::span<const int64_t> sums);

  int64_t samples() const { return total(0); }
  /// Expected calibration error: Σ over bins of |Σ probability - positives|, divided by samples
  /// (Guo et al. 2017, eq. 3, for the probability of a click). Nothing without samples.
  std::optional<double> error() const;
  /// Predicted clicks divided by observed ones: 1 is right on average, 2 promises twice as many
  /// (He et al. 2014, section 3). Nothing without a positive.
  std::optional<double> ratio() const;

 private:
  int64_t total(int what) const;
  int bins_;
  std::vector<int64_t> sums_;  // [bins, 3]
};

/// What a prediction means for all data when the model was trained on data of which negatives were
/// kept with probability `rate` only (He et al. 2014, section 6.3): q = p / (p + (1 - p) / rate).
/// 0 < rate <= 1; UsageError for others.
double undo_negative_sampling(double probability, double rate);
/// The same for a logit: logit + ln(rate).
double undo_negative_sampling_of_logit(double logit, double rate);

}  // namespace lockstep::data

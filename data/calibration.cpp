#include "data/calibration.h"

#include "data/log_loss.h"

#include "core/check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lockstep::data {
namespace {

constexpr double kUnit = 0x1p-32;
enum { kSamples, kPositives, kProbability, kPerBin };

void check_rate(double rate) {
  check(rate > 0 && rate <= 1, "[data.calibration] rate; expected 0 < rate <= 1, got {}", rate);
}

}  // namespace

Calibration::Calibration(int bins) : bins_(bins) {
  check(bins >= 1 && bins <= 10000, "[data.calibration] bins; expected 1..10000, got {}", bins);
  sums_.resize(static_cast<size_t>(bins) * kPerBin);
}

void Calibration::add(double probability, double label) {
  check(probability >= 0 && probability <= 1,
        "[data.calibration] probability; expected 0..1, got {}", probability);
  check(label == 0 || label == 1, "[data.calibration] label; expected 0 or 1, got {}", label);
  int64_t* bin = &sums_[std::min(static_cast<int>(probability * bins_), bins_ - 1) * kPerBin];
  bin[kSamples] += 1;
  bin[kPositives] += label == 1 ? 1 : 0;
  bin[kProbability] += std::llround(probability / kUnit);
}

void Calibration::add(std::span<const float> logits, std::span<const float> labels) {
  check(logits.size() == labels.size(),
        "[data.calibration] labels; expected as many as logits, {}, got {}", logits.size(),
        labels.size());
  for (size_t i = 0; i < logits.size(); ++i) add(sigmoid(logits[i]), labels[i]);
}

void Calibration::merge(std::span<const int64_t> sums) {
  check(sums.size() == sums_.size(), "[data.calibration] sums; expected {}, got {}", sums_.size(),
        sums.size());
  for (size_t i = 0; i < sums.size(); ++i) sums_[i] += sums[i];
}

int64_t Calibration::total(int what) const {
  int64_t sum = 0;
  for (int b = 0; b < bins_; ++b) sum += sums_[b * kPerBin + what];
  return sum;
}

std::optional<double> Calibration::error() const {
  if (samples() == 0) return std::nullopt;
  double sum = 0;
  for (int b = 0; b < bins_; ++b) {
    const int64_t* bin = &sums_[b * kPerBin];
    sum += std::abs(static_cast<double>(bin[kProbability]) * kUnit -
                    static_cast<double>(bin[kPositives]));
  }
  return sum / static_cast<double>(samples());
}

std::optional<double> Calibration::ratio() const {
  const int64_t positives = total(kPositives);
  if (positives == 0) return std::nullopt;
  return static_cast<double>(total(kProbability)) * kUnit / static_cast<double>(positives);
}

double undo_negative_sampling(double probability, double rate) {
  check_rate(rate);
  check(probability >= 0 && probability <= 1,
        "[data.calibration] probability; expected 0..1, got {}", probability);
  return probability / (probability + (1 - probability) / rate);
}

double undo_negative_sampling_of_logit(double logit, double rate) {
  check_rate(rate);
  return logit + std::log(rate);
}

}  // namespace lockstep::data

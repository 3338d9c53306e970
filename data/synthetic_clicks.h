#pragma once
#include "data/best_possible.h"
#include "data/clicks.h"
#include "data/zipf.h"

#include <array>

namespace lockstep::data {

/// Clicks with a planted truth, so that the best possible AUC and log-loss are known.
///
/// Dense features are uniform with mean 0 and variance 1. Rows follow Zipf's law in each table,
/// the frequent ones scattered over it. A teacher gives each sample the logit
///
///     bias + Σ_f w_f x_f + Σ_t e_t + Σ_{t<u} v_t · v_u
///
/// where e_t and the three numbers of v_t belong to the row that table t shows (in a bag of n rows:
/// their sum, each times its weight if it has one, divided by n), so that tables must be learnt one
/// by one and in pairs; the label is 1 with that logit's probability. All parameters are uniform
/// with mean 0.
///
/// Samples and teacher are pure functions of seed and number; nothing grows with the tables.
class SyntheticClicks final : public ClickSource {
 public:
  struct Options {
    int64_t tables = 8, rows = 2000, dense = 13;
    double zipf = 1.2;        ///< exponent
    int64_t largest_bag = 1;  ///< bags have 1 … this many rows, each number as likely
    bool weighted = false;    ///< rows have weights, uniform in [0.5, 1.5)
    uint64_t seed = 0;
    int64_t samples = int64_t{1} << 40;  ///< of an epoch: nothing repeats before
    int64_t held_out = 100'000;
    double bias = -1;
    /// Standard deviations of the three parts of the logit (over teachers and samples).
    double dense_spread = 1, row_spread = 1.4, pair_spread = 0.5;
  };
  /// UsageError for sizes out of range; samples + held_out <= 2^41.
  explicit SyntheticClicks(const Options& options);

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return options_.samples; }
  int64_t held_out() const override { return options_.held_out; }
  /// One after the other: the samples are independent.
  SamplerOptions::Order order() const override { return SamplerOptions::Order::sequential; }
  void fill(std::span<const int64_t> samples, ClickBuffer& to) const override;

  /// The true logits of these samples: scores that no model beats.
  std::vector<double> logits(std::span<const int64_t> samples) const;
  /// From the first of a sequence of samples that is used for nothing else.
  BestPossible best(int64_t samples = int64_t{1} << 17) const;

 private:
  struct Affine {  // place k of Zipf's law is row (a·k + b) mod rows
    int64_t a, b;
  };
  int64_t bag_size(int64_t sample, int64_t table) const;
  float weight(int64_t sample, int64_t index) const;
  template <class Put>
  double draw(int64_t sample, float* dense, Put put) const;

  Options options_;
  ClickSchema schema_;
  Zipf zipf_;
  std::vector<double> weights_;                             // [F]
  std::vector<Affine> scattered_;                           // [T]
  double row_scale_, pair_scale_;                           // of uniform numbers in [-1, 1)
  int64_t first_size_, first_row_, first_weight_, blocks_;  // where a sample's random blocks are
};

}  // namespace lockstep::data

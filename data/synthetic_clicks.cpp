#include "data/synthetic_clicks.h"

#include "data/log_loss.h"

#include "core/check.h"
#include "core/parallel.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace lockstep::data {
namespace {

// Keys of the random stream: one for the samples, one for what belongs to no row, one a table.
constexpr uint32_t kSampleKey = 0, kTeacherKey = 1, kFirstTableKey = 2;
constexpr int64_t kBestSample = int64_t{1} << 41;  // training and held-out samples are below
constexpr int64_t kMostTables = 4096, kMostDense = 4096, kLargestBag = 256;
constexpr int64_t kGrain = 64;  // samples worth a thread

// In [-1, 1), in steps of 2^-31.
double symmetric(uint32_t word) {
  return static_cast<double>(static_cast<int32_t>(word)) * 0x1p-31;
}
uint64_t wide(uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; }
int64_t quotient_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

Random samples_of(uint64_t seed) { return {seed, RandomStream::clicks, kSampleKey}; }

void check_options(const SyntheticClicks::Options& o) {
  const auto within = [](const char* what, int64_t value, int64_t least, int64_t most) {
    check(value >= least && value <= most, "[data.synthetic] {}; expected {}..{}, got {}", what,
          least, most, value);
  };
  within("tables", o.tables, 1, kMostTables);
  within("rows of a table", o.rows, 1, INT32_MAX);
  within("dense features", o.dense, 0, kMostDense);
  within("rows of a bag", o.largest_bag, 1, kLargestBag);
  within("samples", o.samples, 1, kBestSample);
  within("held-out samples", o.held_out, 0, kBestSample - o.samples);
  check(std::isfinite(o.bias), "[data.synthetic] bias; expected a number, got {}", o.bias);
  for (const double spread : {o.dense_spread, o.row_spread, o.pair_spread})
    check(spread >= 0 && spread <= 100, "[data.synthetic] spread; expected 0..100, got {}", spread);
}

}  // namespace

SyntheticClicks::SyntheticClicks(const Options& options)
    : options_((check_options(options), options)),
      schema_{.dense = options.dense,
              .table_rows = std::vector<int64_t>(options.tables, options.rows),
              .largest_bag = options.largest_bag,
              .weighted = options.weighted},
      zipf_(options.rows, options.zipf) {
  const auto tables = static_cast<double>(options.tables);
  const auto dense = static_cast<double>(options.dense);
  const Random teacher(options.seed, RandomStream::clicks, kTeacherKey);
  const double root3 = std::numbers::sqrt3;  // uniform in [-√3, √3) has variance 1
  for (int64_t f = 0; f < options.dense; ++f)
    weights_.push_back(root3 * symmetric(teacher.word(f)) * options.dense_spread /
                       std::sqrt(dense));
  for (int64_t t = 0; t < options.tables; ++t) {
    const auto rows = static_cast<uint64_t>(options.rows);
    int64_t a = 1 + static_cast<int64_t>(teacher.below(rows, kMostDense + 2 * t));
    while (std::gcd(a, options.rows) != 1) ++a;  // so that no two places share a row
    scattered_.push_back({a, static_cast<int64_t>(teacher.below(rows, kMostDense + 2 * t + 1))});
  }
  row_scale_ = root3 * options.row_spread / std::sqrt(tables);
  // Var Σ_{t<u} v_t·v_u = T(T-1)/2 · 3 · var(v)^2.
  const double pairs = std::max(tables * (tables - 1) / 2, 1.0);
  pair_scale_ = root3 * std::pow(options.pair_spread * options.pair_spread / (3 * pairs), 0.25);
  first_size_ = 1 + quotient_up(options.dense, 4);  // block 0 is the label's
  first_row_ = first_size_ + (options.largest_bag > 1 ? quotient_up(options.tables, 4) : 0);
  const int64_t most_rows = options.tables * options.largest_bag;
  first_weight_ = first_row_ + quotient_up(most_rows, 2);
  blocks_ = first_weight_ + (options.weighted ? quotient_up(most_rows, 4) : 0);
}

int64_t SyntheticClicks::bag_size(int64_t sample, int64_t table) const {
  if (options_.largest_bag == 1) return 1;
  const uint64_t word =
      samples_of(options_.seed).word(4 * (sample * blocks_ + first_size_) + table);
  return 1 + static_cast<int64_t>((word * static_cast<uint64_t>(options_.largest_bag)) >> 32);
}

// Of the row that is number `index` of all that the sample could have.
float SyntheticClicks::weight(int64_t sample, int64_t index) const {
  if (!options_.weighted) return 1;
  return 0.5f + samples_of(options_.seed).uniform(4 * (sample * blocks_ + first_weight_) + index);
}

// Writes the dense features, calls put(table, index in the bag, row, weight), returns the logit.
template <class Put>
double SyntheticClicks::draw(int64_t sample, float* dense, Put put) const {
  const Random random = samples_of(options_.seed);
  const int64_t first = sample * blocks_;
  double logit = options_.bias;
  for (int64_t f = 0; f < options_.dense; f += 4) {
    const auto words = random.block(first + 1 + f / 4);
    for (int64_t i = f; i < std::min(f + 4, options_.dense); ++i) {
      dense[i] = static_cast<float>(std::numbers::sqrt3 * symmetric(words[i - f]));
      logit += weights_[i] * dense[i];
    }
  }
  double sum[3] = {}, squares = 0;  // of the v_t: Σ_{t<u} v_t·v_u = (|Σ v_t|² - Σ |v_t|²) / 2
  std::array<uint32_t, 4> words{};
  int64_t drawn = -1;  // which block `words` is
  for (int64_t t = 0; t < options_.tables; ++t) {
    const Random table(options_.seed, RandomStream::clicks,
                       kFirstTableKey + static_cast<uint32_t>(t));
    const int64_t size = bag_size(sample, t);
    double e = 0, v[3] = {};
    for (int64_t i = 0; i < size; ++i) {
      const int64_t index = t * options_.largest_bag + i;
      if (index / 2 != drawn) words = random.block(first + first_row_ + (drawn = index / 2));
      const int64_t place =
          zipf_(index % 2 == 0 ? wide(words[0], words[1]) : wide(words[2], words[3]));
      const int64_t row = (scattered_[t].a * place + scattered_[t].b) % options_.rows;
      const float times = weight(sample, index);
      put(t, i, static_cast<int32_t>(row), times);
      const auto effects = table.block(row);
      e += times * symmetric(effects[0]);
      for (int d = 0; d < 3; ++d) v[d] += times * symmetric(effects[d + 1]);
    }
    const double mean = 1 / static_cast<double>(size);
    logit += row_scale_ * (e * mean);
    for (int d = 0; d < 3; ++d) {
      v[d] *= pair_scale_ * mean;
      sum[d] += v[d];
      squares += v[d] * v[d];
    }
  }
  return logit + (sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2] - squares) / 2;
}

void SyntheticClicks::fill(std::span<const int64_t> samples, ClickBuffer& to) const {
  const auto n = static_cast<int64_t>(samples.size());
  const int64_t bags = options_.tables * n;
  int64_t total = bags;
  int32_t* offsets = nullptr;
  if (options_.largest_bag > 1) {
    offsets = to.resize(n, to.batch().rows.size(0)).offsets.mutable_data<int32_t>();
    total = 0;
    for (int64_t bag = 0; bag < bags; ++bag) {
      offsets[bag] = static_cast<int32_t>(total);
      total += bag_size(samples[bag % n], bag / n);
    }
    offsets[bags] = static_cast<int32_t>(total);
  }
  const ClickBatch& batch = to.resize(n, total);
  if (n == 0) return;
  float* dense = batch.dense.defined() ? batch.dense.mutable_data<float>() : nullptr;
  float* labels = batch.labels.mutable_data<float>();
  int32_t* rows = batch.rows.mutable_data<int32_t>();
  float* weights = batch.weights.defined() ? batch.weights.mutable_data<float>() : nullptr;
  const Random random = samples_of(options_.seed);
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const double logit = draw(samples[b], dense + b * options_.dense,
                                [&](int64_t t, int64_t i, int32_t row, float times) {
                                  const int64_t at =
                                      (offsets != nullptr ? offsets[t * n + b] : t * n + b) + i;
                                  rows[at] = row;
                                  if (weights != nullptr) weights[at] = times;
                                });
      const auto words = random.block(samples[b] * blocks_);
      const double uniform = static_cast<double>(wide(words[0], words[1]) >> 11) * 0x1p-53;
      labels[b] = uniform < sigmoid(logit) ? 1.0f : 0.0f;
    }
  });
}

std::vector<double> SyntheticClicks::logits(std::span<const int64_t> samples) const {
  std::vector<double> logits(samples.size());
  parallel_for(static_cast<int64_t>(samples.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> dense(options_.dense);
    for (int64_t i = begin; i < end; ++i)
      logits[i] = draw(samples[i], dense.data(), [](int64_t, int64_t, int32_t, float) {});
  });
  return logits;
}

BestPossible SyntheticClicks::best(int64_t samples) const {
  check(samples >= 64 && samples <= kBestSample,
        "[data.synthetic] samples for the best possible; expected 64..{}, got {}", kBestSample,
        samples);
  std::vector<int64_t> numbers(samples);
  std::iota(numbers.begin(), numbers.end(), kBestSample);
  return best_possible(logits(numbers));
}

}  // namespace lockstep::data

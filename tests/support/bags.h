#pragma once
#include <cmath>
#include <map>
#include <vector>

#include "core/kernels/embedding_bag.h"
#include "core/random.h"
#include "core/sparse_grad.h"
#include "core/tensor.h"

/// Lookups in several tables for tests: made at random, and done the plain way. The plain way adds
/// floats in the order that is promised, so that results must have the same bits.
namespace lockstep::test {

struct TestTables {
  explicit TestTables(const std::vector<int64_t>& sizes) : rows(sizes), first_row{0} {
    for (int64_t n : rows) first_row.push_back(first_row.back() + n);
  }
  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  int64_t all() const { return first_row.back(); }
  kernel::TableLayout layout(int64_t padding = -1) const { return {first_row, padding}; }
  std::vector<int64_t> rows, first_row;
};

/// Bags of 0 to `most` rows each; most 0: one row each, without offsets.
template <class Id>
kernel::Bags random_bags(const TestTables& tables, int64_t samples, int64_t most, BagMode mode,
                         uint32_t key) {
  const Random random(7, RandomStream::tests, key);
  std::vector<Id> rows, offsets{0};
  std::vector<float> weights;
  uint64_t at = 0;
  for (int64_t t = 0; t < tables.count(); ++t)
    for (int64_t b = 0; b < samples; ++b) {
      const uint64_t n = most == 0 ? 1 : random.below(static_cast<uint64_t>(most) + 1, at++);
      for (uint64_t i = 0; i < n; ++i) {
        rows.push_back(static_cast<Id>(random.below(tables.rows[t], at++)));
        weights.push_back(random.uniform(at++) - 0.5f);
      }
      offsets.push_back(static_cast<Id>(rows.size()));
    }
  return {.rows = from_values(rows),
          .offsets = most == 0 ? Tensor() : from_values(offsets),
          .weights = mode == BagMode::weighted ? from_values(weights) : Tensor(),
          .mode = mode};
}

inline std::vector<int64_t> integers(const Tensor& x) {
  if (x.dtype() == DType::i64) return values<int64_t>(x);
  const std::vector<int32_t> narrow = values<int32_t>(x);
  return {narrow.begin(), narrow.end()};
}

/// f(table, sample, position, row, rows in the bag) for every index, in order.
template <class F>
void for_each_index(const kernel::Bags& bags, int64_t tables, F f) {
  const std::vector<int64_t> rows = integers(bags.rows);
  std::vector<int64_t> offsets;
  if (bags.offsets.defined())
    offsets = integers(bags.offsets);
  else
    for (size_t i = 0; i <= rows.size(); ++i) offsets.push_back(static_cast<int64_t>(i));
  const int64_t samples = (static_cast<int64_t>(offsets.size()) - 1) / tables;
  for (int64_t bag = 0; bag < tables * samples; ++bag)
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i)
      f(bag / samples, bag % samples, i, rows[i], offsets[bag + 1] - offsets[bag]);
}

/// [B, leading + T, D], with `before` in the leading rows.
inline std::vector<float> naive_bags(const Tensor& tables, const kernel::Bags& bags,
                                     const TestTables& layout, int64_t samples, int64_t leading,
                                     float before) {
  const int64_t width = tables.size(1), per_sample = leading + layout.count();
  std::vector<float> out(static_cast<size_t>(samples * per_sample * width), before);
  const std::vector<float> from = values(tables);
  const std::vector<float> weights =
      bags.weights.defined() ? values(bags.weights) : std::vector<float>();
  for (int64_t b = 0; b < samples; ++b)
    std::fill_n(out.begin() + (b * per_sample + leading) * width, layout.count() * width, 0.0f);
  std::vector<int64_t> seen(samples * layout.count()), sizes(samples * layout.count());
  for_each_index(bags, layout.count(),
                 [&](int64_t t, int64_t b, int64_t i, int64_t row, int64_t n) {
                   float* to = &out[(b * per_sample + leading + t) * width];
                   const float* w = &from[(layout.first_row[t] + row) * width];
                   for (int64_t c = 0; c < width; ++c) {
                     const float x = weights.empty() ? w[c] : w[c] * weights[i];
                     to[c] = seen[b * layout.count() + t] == 0 ? x : to[c] + x;
                   }
                   ++seen[b * layout.count() + t];
                   if (bags.mode == BagMode::mean && seen[b * layout.count() + t] == n)
                     for (int64_t c = 0; c < width; ++c) to[c] /= static_cast<float>(n);
                 });
  return out;
}

/// Row of the flat tensor -> its gradient, in the promised order of additions.
using NaiveRows = std::map<int64_t, std::vector<float>>;
inline NaiveRows naive_coalesced(const std::vector<kernel::BagGradient>& parts,
                                 const TestTables& layout, int64_t padding = -1) {
  NaiveRows sums;
  for (const auto& [dy, bags] : parts) {
    const std::vector<float> d = values(dy);
    const std::vector<float> weights =
        bags.weights.defined() ? values(bags.weights) : std::vector<float>();
    const int64_t width = dy.size(2), leading = dy.size(1) - layout.count();
    for_each_index(bags, layout.count(),
                   [&](int64_t t, int64_t b, int64_t i, int64_t row, int64_t n) {
                     if (row == padding) return;
                     const float scale = bags.mode == BagMode::mean ? 1.0f / static_cast<float>(n)
                                         : weights.empty()          ? 1.0f
                                                                    : weights[i];
                     const float* from = &d[(b * dy.size(1) + leading + t) * width];
                     auto& sum = sums[layout.first_row[t] + row];
                     const bool fresh = sum.empty();
                     sum.resize(width);
                     for (int64_t c = 0; c < width; ++c) {
                       const float x = from[c] * scale;
                       sum[c] = fresh ? x : sum[c] + x;
                     }
                   });
  }
  return sums;
}

inline NaiveRows as_rows(const SparseGrad& g) {
  NaiveRows sums;
  const std::vector<int64_t> rows = values<int64_t>(g.rows);
  const std::vector<float> v = values(g.values);
  const int64_t width = g.values.size(1);
  for (size_t i = 0; i < rows.size(); ++i)
    sums[rows[i]] = {v.begin() + i * width, v.begin() + (i + 1) * width};
  return sums;
}

inline SparseGrad coalesced(const std::vector<kernel::BagGradient>& parts, const TestTables& layout,
                            int64_t padding = -1) {
  int64_t most = 0;
  for (const auto& part : parts) most += part.bags.rows.numel();
  const Tensor rows = full({most}, -7, DType::i64),
               sums = full({most, parts.empty() ? 1 : parts[0].dy.size(2)}, NAN);
  const int64_t count = kernel::coalesce_bags(rows, sums, parts, layout.layout(padding));
  return {rows.slice(0, count), sums.slice(0, count)};
}

}  // namespace lockstep::test

#pragma once
#include "data/clicks.h"

#include <numeric>
#include <vector>

namespace lockstep::data {

/// One sample of a batch, for comparing samples that stand in different batches.
struct OneClick {
  std::vector<float> dense;
  std::vector<std::vector<int32_t>> bags;
  std::vector<std::vector<float>> weights;  // none where rows have none
  float label = 0;
  bool operator==(const OneClick&) const = default;
};

inline std::vector<OneClick> clicks_in(const ClickBatch& batch, const ClickSchema& schema) {
  const int64_t n = batch.samples();
  const auto dense = schema.dense > 0 ? values(batch.dense) : std::vector<float>();
  const auto rows = values<int32_t>(batch.rows);
  const auto labels = values(batch.labels);
  const auto offsets =
      batch.offsets.defined() ? values<int32_t>(batch.offsets) : std::vector<int32_t>();
  const auto weights = batch.weights.defined() ? values(batch.weights) : std::vector<float>();
  std::vector<OneClick> all;
  for (int64_t b = 0; b < n; ++b) {
    OneClick click{{dense.begin() + b * schema.dense, dense.begin() + (b + 1) * schema.dense},
                   {},
                   {},
                   labels[b]};
    for (int64_t t = 0; t < schema.tables(); ++t) {
      const int64_t bag = t * n + b;
      const int64_t begin = offsets.empty() ? bag : offsets[bag];
      const int64_t end = offsets.empty() ? bag + 1 : offsets[bag + 1];
      click.bags.emplace_back(rows.begin() + begin, rows.begin() + end);
      if (!weights.empty())
        click.weights.emplace_back(weights.begin() + begin, weights.begin() + end);
    }
    all.push_back(click);
  }
  return all;
}

inline std::vector<int64_t> numbers(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

inline std::vector<OneClick> clicks_of(const ClickSource& source,
                                       const std::vector<int64_t>& samples) {
  ClickBuffer buffer(source.schema(), static_cast<int64_t>(samples.size()));
  source.fill(samples, buffer);
  return clicks_in(buffer.batch(), source.schema());
}

}  // namespace lockstep::data

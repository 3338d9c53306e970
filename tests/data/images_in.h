#pragma once
#include "data/images.h"

#include <numeric>
#include <vector>

namespace lockstep::data {

/// One sample of a batch, for comparing samples that stand in different batches.
struct OneImage {
  std::vector<float> pixels;
  int32_t label = 0;
  bool operator==(const OneImage&) const = default;
};

inline std::vector<OneImage> images_in(const ImageBatch& batch) {
  std::vector<OneImage> all;
  if (batch.samples() == 0) return all;
  const auto pixels = values(batch.images);
  const auto labels = values<int32_t>(batch.labels);
  const int64_t each = batch.images.numel() / batch.samples();
  for (int64_t b = 0; b < batch.samples(); ++b)
    all.push_back({{pixels.begin() + b * each, pixels.begin() + (b + 1) * each}, labels[b]});
  return all;
}

inline std::vector<OneImage> images_of(const ImageDataset& source,
                                       const std::vector<int64_t>& samples) {
  ImageBuffer buffer(source.schema(), static_cast<int64_t>(samples.size()));
  source.fill(samples, buffer);
  return images_in(buffer.batch());
}

inline std::vector<int64_t> sample_numbers(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace lockstep::data

#include "data/images.h"

#include "core/check.h"

#include <cmath>

namespace lockstep::data {

void ImageSchema::check_sizes() const {
  constexpr int64_t kMostPixels = int64_t{1} << 26;
  for (const int64_t extent : {channels, height, width})
    check(extent >= 1 && extent <= kMostPixels, "[data.images] extent; expected 1..{}, got {}",
          kMostPixels, extent);
  check(checked_mul(channels, height * width) <= kMostPixels,
        "[data.images] pixels; expected at most {}, got {} x {} x {}", kMostPixels, channels,
        height, width);
  check(classes >= 1 && classes <= INT32_MAX, "[data.images] classes; expected 1..{}, got {}",
        INT32_MAX, classes);
  check(std::ssize(mean) == channels && std::ssize(deviation) == channels,
        "[data.images] mean and deviation; expected {} of each, got {} and {}", channels,
        mean.size(), deviation.size());
  for (const float one : deviation)
    check(std::isfinite(one) && one > 0, "[data.images] deviation; expected more than 0, got {}",
          one);
}

ImageBuffer::ImageBuffer(const ImageSchema& schema, int64_t most_samples) {
  schema.check_sizes();
  check(most_samples >= 1, "[data.images] samples; expected at least 1, got {}", most_samples);
  whole_.images =
      Tensor::empty({most_samples, schema.channels, schema.height, schema.width}, DType::f32);
  whole_.labels = Tensor::empty({most_samples}, DType::i32);
  batch_ = whole_;
}

ImageBatch& ImageBuffer::resize(int64_t samples) {
  check(samples >= 0 && samples <= most_samples(), "[data.images] samples; expected 0..{}, got {}",
        most_samples(), samples);
  if (samples != batch_.samples()) {
    batch_.images = whole_.images.slice(0, samples);
    batch_.labels = whole_.labels.slice(0, samples);
  }
  return batch_;
}

}  // namespace lockstep::data

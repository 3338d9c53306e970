#pragma once
#include "data/sampler.h"

#include "core/tensor.h"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// What a source's images look like. Pixels p in 0 … 1 are served as (p - mean) / deviation.
struct ImageSchema {
  int64_t channels = 1, height = 0, width = 0;
  int64_t classes = 0;
  std::vector<float> mean, deviation;  ///< of each channel; no deviation is 0
  int64_t pixels() const { return channels * height * width; }
  /// UsageError for what no image can have; an image has at most 2^26 pixels of all channels.
  void check_sizes() const;
};

/// B images and what they show.
struct ImageBatch {
  Tensor images;  ///< f32 [B, C, H, W]
  Tensor labels;  ///< i32 [B], 0 … classes - 1
  int64_t step = 0;
  int64_t first_sample = 0;  ///< position of the first within the step's global batch
  int64_t samples() const { return labels.defined() ? labels.size(0) : 0; }
};

/// Memory for batches of up to a number of images, used again and again.
class ImageBuffer {
 public:
  ImageBuffer(const ImageSchema& schema, int64_t most_samples);
  /// Sets the batch's size.
  ImageBatch& resize(int64_t samples);
  ImageBatch& batch() { return batch_; }
  const ImageBatch& batch() const { return batch_; }
  int64_t most_samples() const { return whole_.samples(); }
  std::vector<std::vector<uint8_t>> scratch;  ///< for readers, one a thread

 private:
  ImageBatch whole_, batch_;
};

/// Where images come from. A sample is a pure function of the source and its number, so any split
/// of a batch over ranks and micro-batches, and any resumed run, sees the same ones.
///
/// Training samples are numbered 0 … samples() - 1; the next held_out() numbers are for validation
/// and no others are. fill() may be called from several threads at once, each with its own buffer.
class ImageDataset {
 public:
  using Buffer = ImageBuffer;
  virtual ~ImageDataset() = default;
  virtual const ImageSchema& schema() const = 0;
  virtual int64_t samples() const = 0;
  virtual int64_t held_out() const = 0;
  /// In which order a training run should go through them.
  virtual SamplerOptions::Order order() const = 0;
  /// Puts these samples into the buffer's batch, in this order, using the calling thread's budget
  /// of threads. UsageError for numbers that are none.
  virtual void fill(std::span<const int64_t> samples, ImageBuffer& to) const = 0;
};

}  // namespace lockstep::data

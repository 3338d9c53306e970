#include "data/image_files.h"

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::data {
namespace {

constexpr int64_t kGrain = 64;                // images worth a thread
constexpr uint32_t kSplitOrder = 0xFFFFFFFE;  // a key of the data order that no epoch has
constexpr double kOneByte = 1.0 / 255;

}  // namespace

void PixelCounts::add(const uint8_t* pixels, int64_t a_channel) {
  const auto channels = static_cast<int64_t>(counts_.size()) / 256;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < a_channel; ++i) ++counts_[c * 256 + pixels[c * a_channel + i]];
}

void PixelCounts::add(const PixelCounts& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

PixelCounts::Moments PixelCounts::moments(int64_t channel) const {
  const int64_t* counts = counts_.data() + channel * 256;
  double count = 0, sum = 0, squares = 0;
  for (int value = 0; value < 256; ++value) {
    count += static_cast<double>(counts[value]);
    sum += static_cast<double>(counts[value]) * value;
  }
  if (count == 0) return {};
  const double mean = sum / count;
  for (int value = 0; value < 256; ++value)
    squares += static_cast<double>(counts[value]) * (value - mean) * (value - mean);
  return {.mean = mean * kOneByte, .deviation = std::sqrt(squares / count) * kOneByte};
}

ImageFiles::ImageFiles(Options options)
    : parts_(std::move(options.training)), shuffled_(options.held_out.empty()) {
  check(!parts_.empty(), "[data.images] training images; expected some, got none");
  check(options.held_out_share >= 0 && options.held_out_share < 1,
        "[data.images] held-out share; expected 0 <= share < 1, got {}", options.held_out_share);
  const auto count = [&] {
    int64_t sum = 0;
    for (const StoredImages& part : parts_) sum += part.count;
    return sum;
  };
  samples_ = count();
  for (StoredImages& part : options.held_out) parts_.push_back(std::move(part));
  count_ = count();
  if (shuffled_)
    samples_ -= static_cast<int64_t>(options.held_out_share * static_cast<double>(samples_));
  held_out_ = count_ - samples_;

  const StoredImages& first = parts_.front();
  schema_ = {.channels = first.channels, .height = first.height, .width = first.width};
  int64_t classes = options.least_classes;
  for (const StoredImages& part : parts_) {
    if (part.channels != first.channels || part.height != first.height || part.width != first.width)
      throw SystemError(
          Fault::file,
          fmt::format("[data.images] {}: images; expected {} x {} x {} as in {}, got {} x {} x {}",
                      printable(part.file->path()), first.channels, first.height, first.width,
                      printable(first.file->path()), part.channels, part.height, part.width));
    for (const uint8_t label : part.labels) classes = std::max<int64_t>(classes, label + 1);
  }
  schema_.classes = classes;
  normalise();
  schema_.check_sizes();
}

void ImageFiles::normalise() {
  // Read in the order of the files: which of the places are training images?
  std::vector<bool> training(count_);
  for (int64_t sample = 0; sample < samples_; ++sample) training[place_of(sample)] = true;
  PixelCounts all(schema_.channels);
  int64_t before = 0;
  for (const StoredImages& part : parts_) {
    const int64_t pieces = parallel_pieces(part.count, kGrain);
    std::vector<PixelCounts> counts(pieces, PixelCounts(schema_.channels));
    parallel_for(part.count, kGrain, [&](int64_t begin, int64_t end, int piece) {
      std::vector<uint8_t> pixels(part.pixels());
      for (int64_t image = begin; image < end; ++image) {
        if (!training[before + image]) continue;
        part.read(image, pixels.data());
        counts[piece].add(pixels.data(), part.height * part.width);
      }
    });
    for (const PixelCounts& one : counts) all.add(one);
    before += part.count;
  }
  for (int64_t channel = 0; channel < schema_.channels; ++channel) {
    const auto [mean, deviation] = all.moments(channel);
    schema_.mean.push_back(static_cast<float>(mean));
    schema_.deviation.push_back(deviation > 0 ? static_cast<float>(deviation) : 1.0f);
    for (int value = 0; value < 256; ++value)
      values_.push_back(
          static_cast<float>((value * kOneByte - mean) / (deviation > 0 ? deviation : 1)));
  }
}

// Among the images of all parts.
int64_t ImageFiles::place_of(int64_t sample) const {
  if (!shuffled_) return sample;
  const Permutation order(count_, Random(0, RandomStream::data_order, kSplitOrder));
  return static_cast<int64_t>(order(static_cast<uint64_t>(sample)));
}

void ImageFiles::fill(std::span<const int64_t> samples, ImageBuffer& to) const {
  const auto n = static_cast<int64_t>(samples.size());
  for (const int64_t sample : samples)
    check(sample >= 0 && sample < count_, "[data.images] sample; expected 0..{}, got {}",
          count_ - 1, sample);
  const ImageBatch& batch = to.resize(n);
  if (n == 0) return;
  float* images = batch.images.mutable_data<float>();
  int32_t* labels = batch.labels.mutable_data<int32_t>();
  const int64_t pixels = schema_.pixels(), plane = schema_.height * schema_.width;
  to.scratch.resize(std::max<size_t>(to.scratch.size(), parallel_pieces(n, kGrain)));
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int piece) {
    std::vector<uint8_t>& bytes = to.scratch[piece];
    bytes.resize(pixels);
    for (int64_t b = begin; b < end; ++b) {
      int64_t image = place_of(samples[b]);
      const StoredImages* part = parts_.data();
      for (; image >= part->count; ++part) image -= part->count;
      part->read(image, bytes.data());
      labels[b] = part->labels[image];
      float* out = images + b * pixels;
      for (int64_t channel = 0; channel < schema_.channels; ++channel) {
        const float* value = values_.data() + channel * 256;
        for (int64_t i = channel * plane; i < (channel + 1) * plane; ++i) out[i] = value[bytes[i]];
      }
    }
  });
}

}  // namespace lockstep::data

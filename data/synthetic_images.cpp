#include "data/synthetic_images.h"

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

namespace lockstep::data {
namespace {

constexpr int64_t kShapes = 5, kRadii = 16, kRotations = 64;
constexpr int64_t kTextures = 2, kAngles = 32, kPhases = 8;
constexpr std::array kWidths{2.0, 2.5, 3.0, 4.0};  // of stripes, in pixels of 32
constexpr int64_t kShapeVariants = kRadii * kRotations;
constexpr int64_t kTextureVariants = std::ssize(kWidths) * kAngles * kPhases;
constexpr int64_t kBorder = 2;  // pixels that show the texture alone
constexpr int64_t kMostChannels = 3;
constexpr int64_t kMostSamples = int64_t{1} << 41;
constexpr int64_t kGrain = 8;  // images worth a thread

// See Note [Why the best accuracy is exact].
constexpr double kColourGap = 0.2, kMostNoise = 0.045, kSameColour = 0.1;
constexpr float kMean = 0.5f, kDeviation = 0.25f;
constexpr double kLeastContrast = 0.5;
constexpr double kFirstLevel = 0.05, kLevelStep = 0.45, kLevelJitter = 0.025;
static_assert((kLevelStep - 2 * kLevelJitter) * kLeastContrast >= kColourGap - 1e-12);
static_assert(2 * kMostNoise < kSameColour && kSameColour < kColourGap - 2 * kMostNoise);

// Random blocks of a sample: class and label, places, look, nine colours; then the noise.
constexpr int64_t kClassBlock = 0, kPlaceBlock = 1, kLookBlock = 2, kColourBlock = 3,
                  kNoiseBlock = 6;
int64_t noise_blocks_a_channel(int64_t size) { return (size * size + 7) / 8; }

double unit(uint32_t word) { return static_cast<double>(word) * 0x1p-32; }
int64_t below(int64_t n, uint32_t word) {
  return static_cast<int64_t>((uint64_t{word} * static_cast<uint64_t>(n)) >> 32);
}

// Whether the point is in a shape of radius 1 around the origin.
bool inside(int64_t shape, double u, double v) {
  const double distance = std::hypot(u, v), largest = std::max(std::abs(u), std::abs(v));
  switch (shape) {
    case 0:
      return distance <= 0.8;  // disc
    case 1:
      return largest <= 0.7;  // square
    case 2:
      return v >= -0.5 && std::numbers::sqrt3 * std::abs(u) + v <= 1;  // triangle
    case 3:
      return distance >= 0.5 && distance <= 0.95;  // ring
    default:
      return largest <= 0.95 && std::min(std::abs(u), std::abs(v)) <= 0.3;  // cross
  }
}

bool odd(double x) { return static_cast<int64_t>(std::floor(x)) % 2 != 0; }

std::string key_of(const std::vector<uint64_t>& rows) {
  return {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(uint64_t)};
}

const SyntheticImages::Options& checked(const SyntheticImages::Options& o) {
  const auto within = [](const char* what, auto value, auto least, auto most) {
    check(value >= least && value <= most, "[data.synthetic] {}; expected {}..{}, got {}", what,
          least, most, value);
  };
  within("size of an image", o.size, 24, 64);
  check(o.channels == 1 || o.channels == kMostChannels,
        "[data.synthetic] channels; expected 1 or {}, got {}", kMostChannels, o.channels);
  within("classes", o.classes, 2, kShapes * kTextures);
  within("label noise", o.label_noise, 0.0, 1.0);
  within("noise", o.noise, 0.0, kMostNoise);
  within("samples", o.samples, 1, kMostSamples);
  within("held-out samples", o.held_out, 0, kMostSamples - o.samples);
  return o;
}

}  // namespace

struct SyntheticImages::Sample {
  int64_t number, truth, label;
  const Rows *shape, *texture;
  int64_t x, y;                     // of the shape's box
  float colours[kMostChannels][3];  // two of the texture, one of the shape
};

SyntheticImages::SyntheticImages(const Options& options)
    : options_(checked(options)),
      schema_{.channels = options.channels,
              .height = options.size,
              .width = options.size,
              .classes = options.classes,
              .mean = std::vector<float>(options.channels, kMean),
              .deviation = std::vector<float>(options.channels, kDeviation)} {
  make_shapes();
  make_textures();
}

void SyntheticImages::make_shapes() {
  const auto size = static_cast<double>(options_.size);
  for (int64_t shape = 0; shape < kShapes; ++shape)
    for (int64_t variant = 0; variant < kShapeVariants; ++variant) {
      const double step = static_cast<double>(variant / kRotations) / (kRadii - 1);
      const double radius = size * (0.22 + 0.16 * step);
      const double angle =
          2 * std::numbers::pi * static_cast<double>(variant % kRotations) / kRotations;
      const double c = std::cos(angle) / radius, s = std::sin(angle) / radius;
      Rows rows;
      uint64_t columns = 0;
      const auto reach = static_cast<int64_t>(radius) + 1;
      for (int64_t y = -reach; y <= reach; ++y) {
        uint64_t row = 0;
        for (int64_t x = -reach; x <= reach; ++x) {
          const auto dx = static_cast<double>(x), dy = static_cast<double>(y);
          if (inside(shape, c * dx + s * dy, c * dy - s * dx)) row |= uint64_t{1} << (x + reach);
        }
        if (row != 0 || !rows.empty()) rows.push_back(row);
        columns |= row;
      }
      while (rows.back() == 0) rows.pop_back();
      const int left = std::countr_zero(columns);
      for (uint64_t& row : rows) row >>= left;
      shape_width_.push_back(std::bit_width(columns >> left));
      const auto [same, added] = shape_of_.emplace(key_of(rows), shape);
      check(same->second == shape, "[data.synthetic] shapes {} and {} have a mask in common",
            same->second, shape);
      shapes_.push_back(std::move(rows));
    }
}

void SyntheticImages::make_textures() {
  const int64_t size = options_.size;
  for (int64_t texture = 0; texture < kTextures; ++texture)
    for (int64_t variant = 0; variant < kTextureVariants; ++variant) {
      const double width = kWidths[variant / (kAngles * kPhases)] * static_cast<double>(size) / 32;
      const double angle =
          std::numbers::pi * static_cast<double>(variant / kPhases % kAngles) / kAngles;
      const double phase = 2.0 * static_cast<double>(variant % kPhases) / kPhases;
      const double c = std::cos(angle) / width, s = std::sin(angle) / width;
      Rows rows(size);
      for (int64_t y = 0; y < size; ++y)
        for (int64_t x = 0; x < size; ++x) {
          const auto dx = static_cast<double>(x), dy = static_cast<double>(y);
          bool tone = odd(c * dx + s * dy + phase);
          if (texture == 1) tone ^= odd(c * dy - s * dx + phase);
          if (tone) rows[y] |= uint64_t{1} << x;
        }
      const auto [same, added] = texture_of_.emplace(border_of(rows), texture);
      check(same->second == texture, "[data.synthetic] both textures have a border in common");
      textures_.push_back(std::move(rows));
    }
}

// The border's pixels, those of the colour of the first one as zeros.
std::string SyntheticImages::border_of(const Rows& rows) const {
  const int64_t size = options_.size;
  const uint64_t all = ~uint64_t{0} >> (64 - size);
  constexpr uint64_t kEdge = (uint64_t{1} << kBorder) - 1;
  Rows border(rows);
  for (int64_t y = 0; y < size; ++y) {
    if ((rows[0] & 1) != 0) border[y] = ~border[y];
    border[y] &= y < kBorder || y >= size - kBorder ? all : kEdge | kEdge << (size - kBorder);
  }
  return key_of(border);
}

SyntheticImages::Sample SyntheticImages::draw(int64_t number) const {
  const int64_t size = options_.size;
  const int64_t blocks = kNoiseBlock + options_.channels * noise_blocks_a_channel(size);
  const Random random(options_.seed, RandomStream::images);
  const auto first = static_cast<uint64_t>(number * blocks);
  Sample sample{.number = number};

  const auto of_class = random.block(first + kClassBlock);
  sample.truth = sample.label = below(options_.classes, of_class[0]);
  if (unit(of_class[1]) < options_.label_noise) sample.label = below(options_.classes, of_class[2]);

  const auto place = random.block(first + kPlaceBlock);
  const int64_t shape = sample.truth % kShapes * kShapeVariants + below(kShapeVariants, place[0]);
  sample.shape = &shapes_[shape];
  const int64_t room = size - 2 * kBorder + 1;
  sample.x = kBorder + below(room - shape_width_[shape], place[1]);
  sample.y = kBorder + below(room - std::ssize(*sample.shape), place[2]);
  sample.texture =
      &textures_[sample.truth / kShapes * kTextureVariants + below(kTextureVariants, place[3])];

  // In one channel the colours are far from each other, in any order; in others they are anything.
  const auto look = random.block(first + kLookBlock);
  const int64_t apart = below(options_.channels, look[0]);
  std::array<int, 3> levels{0, 1, 2};
  for (int64_t orders = below(6, look[1]); orders > 0; --orders)
    std::next_permutation(levels.begin(), levels.end());
  const double contrast = kLeastContrast + (1 - kLeastContrast) * unit(look[2]);
  const double centre = 0.5 + (1 - contrast) * (unit(look[3]) - 0.5);
  std::array<std::array<uint32_t, 4>, 3> words{};
  for (int64_t i = 0; i < 3; ++i) words[i] = random.block(first + kColourBlock + i);
  for (int64_t channel = 0; channel < options_.channels; ++channel)
    for (int i = 0; i < 3; ++i) {
      const double any = unit(words[channel][i]);
      const double colour =
          channel == apart ? kFirstLevel + kLevelStep * levels[i] + kLevelJitter * (2 * any - 1)
                           : any;
      sample.colours[channel][i] =
          (static_cast<float>(centre + contrast * (colour - 0.5)) - kMean) / kDeviation;
    }
  return sample;
}

void SyntheticImages::paint(const Sample& sample, float* pixels) const {
  const int64_t size = options_.size, plane = size * size;
  std::array<uint8_t, 64 * 64 + 8> which;  // of the three colours
  for (int64_t y = 0; y < size; ++y) {
    const int64_t row = y - sample.y;
    const uint64_t shape =
        row >= 0 && row < std::ssize(*sample.shape) ? (*sample.shape)[row] << sample.x : 0;
    const uint64_t texture = (*sample.texture)[y];
    for (int64_t x = 0; x < size; ++x)
      which[y * size + x] = static_cast<uint8_t>((shape >> x & 1) != 0 ? 2 : texture >> x & 1);
  }
  // Half a word a pixel: 65,536 steps from -noise to noise.
  const float step = static_cast<float>(2 * options_.noise / 65535) / kDeviation;
  const float least = static_cast<float>(-options_.noise) / kDeviation;
  const Random random(options_.seed, RandomStream::images);
  const int64_t blocks = noise_blocks_a_channel(size);
  for (int64_t channel = 0; channel < options_.channels; ++channel) {
    const int64_t first =
        sample.number * (kNoiseBlock + options_.channels * blocks) + kNoiseBlock + channel * blocks;
    const float* colours = sample.colours[channel];
    float* to = pixels + channel * plane;
    for (int64_t at = 0; at < plane; at += 8) {
      const auto words = random.block(static_cast<uint64_t>(first + at / 8));
      float noise[8];
      for (int i = 0; i < 4; ++i) {
        noise[2 * i] = least + step * static_cast<float>(words[i] & 0xFFFF);
        noise[2 * i + 1] = least + step * static_cast<float>(words[i] >> 16);
      }
      const int64_t count = std::min<int64_t>(8, plane - at);
      for (int64_t i = 0; i < count; ++i) to[at + i] = colours[which[at + i]] + noise[i];
    }
  }
}

void SyntheticImages::fill(std::span<const int64_t> samples, ImageBuffer& to) const {
  const auto n = static_cast<int64_t>(samples.size());
  const int64_t count = options_.samples + options_.held_out;
  for (const int64_t sample : samples)
    check(sample >= 0 && sample < count, "[data.synthetic] sample; expected 0..{}, got {}",
          count - 1, sample);
  const ImageBatch& batch = to.resize(n);
  if (n == 0) return;
  float* images = batch.images.mutable_data<float>();
  int32_t* labels = batch.labels.mutable_data<int32_t>();
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Sample sample = draw(samples[b]);
      labels[b] = static_cast<int32_t>(sample.label);
      paint(sample, images + b * schema_.pixels());
    }
  });
}

int64_t SyntheticImages::true_class(int64_t sample) const { return draw(sample).truth; }

BestImages SyntheticImages::best() const {
  const auto classes = static_cast<double>(options_.classes);
  const double other = options_.label_noise / classes, right = 1 - (classes - 1) * other;
  const auto surprise = [](double p) { return p > 0 ? -p * std::log(p) : 0.0; };
  return {.accuracy = right, .log_loss = surprise(right) + (classes - 1) * surprise(other)};
}

int64_t SyntheticImages::rule(const float* pixels) const {
  const int64_t size = options_.size, plane = size * size;
  const auto same = [&](int64_t a, int64_t b) {
    for (int64_t channel = 0; channel < options_.channels; ++channel) {
      const float* of = pixels + channel * plane;
      if (!(std::abs(of[a] - of[b]) < kSameColour / kDeviation)) return false;
    }
    return true;
  };
  // The first pixel has one of the texture's colours; a pixel of the border that has another gives
  // the other one.
  const auto in_border = [&](int64_t x, int64_t y) {
    return std::min({x, y, size - 1 - x, size - 1 - y}) < kBorder;
  };
  int64_t other = -1;
  Rows texture(size), shape;
  uint64_t columns = 0;
  for (int64_t y = 0; y < size; ++y)
    for (int64_t x = 0; x < size; ++x)
      if (in_border(x, y) && !same(0, y * size + x)) {
        texture[y] |= uint64_t{1} << x;
        other = y * size + x;
      }
  const auto known_texture = texture_of_.find(border_of(texture));
  check(other >= 0 && known_texture != texture_of_.end(),
        "[data.synthetic] the image shows no texture that is known");
  for (int64_t y = 0; y < size; ++y) {
    uint64_t row = 0;
    for (int64_t x = 0; x < size; ++x)
      if (!same(0, y * size + x) && !same(other, y * size + x)) row |= uint64_t{1} << x;
    if (row != 0 || !shape.empty()) shape.push_back(row);
    columns |= row;
  }
  while (!shape.empty() && shape.back() == 0) shape.pop_back();
  for (uint64_t& row : shape) row >>= std::countr_zero(columns);
  const auto known_shape = shape_of_.find(key_of(shape));
  check(known_shape != shape_of_.end(), "[data.synthetic] the image shows no shape that is known");
  return known_texture->second * kShapes + known_shape->second;
}

}  // namespace lockstep::data

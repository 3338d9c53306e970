#include "layers/init.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "core/kernels/elementwise.h"
#include "core/parallel.h"

namespace lockstep::layers {
namespace {

constexpr double kCut = 2;  // standard deviations
// What cutting a normal at ±2 sd leaves of its standard deviation: √(1 - 4 φ(2) / (2 Φ(2) - 1)).
constexpr double kCutSd = 0.87962566103423978;

// Two independent standard normals from two words (Box-Muller).
struct Pair {
  double a, b;
};
Pair normals(uint32_t first, uint32_t second) {
  const double u = (first + 0.5) * 0x1p-32, v = second * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Within ±kCut. A block gives four tries; what all of them miss goes on in a far part of the
// sequence.
double cut_normal(const Random& random, uint64_t i) {
  for (uint64_t round = 0;; ++round) {
    const auto words = random.block((round << 48) | i);
    for (int pair = 0; pair < 4; pair += 2) {
      const auto [a, b] = normals(words[pair], words[pair + 1]);
      if (std::abs(a) <= kCut) return a;
      if (std::abs(b) <= kCut) return b;
    }
  }
}

}  // namespace

Fans matrix_fans(const Shape& weight, MatrixLayout layout) {
  check(weight.rank() == 2, "[layers.init] fans of a matrix; expected 2 dimensions, got {}",
        to_string(weight));
  return layout == MatrixLayout::out_in ? Fans{weight[1], weight[0]} : Fans{weight[0], weight[1]};
}

Fans filter_fans(const Shape& weight, int64_t groups, FilterLayout layout) {
  check(weight.rank() == 4, "[layers.init] fans of a convolution; expected 4 dimensions, got {}",
        to_string(weight));
  int64_t out = 0, in = 0, taps = 0;
  switch (layout) {
    case FilterLayout::ohwi:
      out = weight[0], taps = checked_mul(weight[1], weight[2]), in = weight[3];
      break;
    case FilterLayout::oihw:
      out = weight[0], in = weight[1], taps = checked_mul(weight[2], weight[3]);
      break;
    case FilterLayout::hwio:
      taps = checked_mul(weight[0], weight[1]), in = weight[2], out = weight[3];
      break;
  }
  check(groups >= 1 && out % groups == 0,
        "[layers.init] groups; expected a divisor of {} output channels, got {}", out, groups);
  return {checked_mul(in, taps), checked_mul(out / groups, taps)};
}

double standard_deviation(const WeightInit& init, Fans fans) {
  if (init.rule == WeightInit::Rule::fixed) return init.sd;
  const int64_t inputs =
      init.rule == WeightInit::Rule::fan_in ? fans.in : checked_add(fans.in, fans.out);
  check(inputs > 0, "[layers.init] expected fans above 0, got {} in and {} out", fans.in, fans.out);
  return std::sqrt(2.0 / static_cast<double>(inputs));
}

double bound(Distribution distribution, double sd) {
  switch (distribution) {
    case Distribution::uniform:
      return std::sqrt(3.0) * sd;
    case Distribution::truncated_normal:
      return kCut / kCutSd * sd;
    case Distribution::normal:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

Tensor Initialiser::weight(const Shape& shape, Fans fans, const WeightInit& init, DType dtype) {
  return draw(shape, init.distribution, standard_deviation(init, fans), dtype);
}

Tensor Initialiser::draw(const Shape& shape, Distribution distribution, double sd, DType dtype) {
  const Tensor x = Tensor::empty(shape);
  distribution == Distribution::uniform ? uniform(x, bound(distribution, sd))
                                        : draw_normal(x, distribution, sd);
  if (dtype == DType::f32) return x;
  Tensor rounded = Tensor::empty(shape, dtype);  // the f32 values, rounded once
  kernel::cast(rounded, x);
  return rounded;
}

void Initialiser::draw_normal(const Tensor& x, Distribution distribution, double sd) {
  const Random random(seed_, RandomStream::initialisation, drawn_++);
  float* out = x.mutable_data<float>();
  const int64_t n = x.numel();
  // A block of four words gives four normals as two pairs.
  parallel_for((n + 3) / 4, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      double four[4];
      if (distribution == Distribution::truncated_normal) {
        for (int i = 0; i < 4; ++i) four[i] = sd / kCutSd * cut_normal(random, block * 4 + i);
      } else {
        const auto words = random.block(block);
        const Pair p = normals(words[0], words[1]), q = normals(words[2], words[3]);
        four[0] = sd * p.a, four[1] = sd * p.b, four[2] = sd * q.a, four[3] = sd * q.b;
      }
      for (int64_t i = block * 4; i < std::min(n, block * 4 + 4); ++i)
        out[i] = static_cast<float>(four[i % 4]);
    }
  });
}

void Initialiser::uniform(const Tensor& out, double bound, int64_t begin) {
  check(begin >= 0, "[layers.init] begin; expected 0 or more, got {}", begin);
  kernel::uniform(
      out, bound,
      {.seed = seed_, .stream = RandomStream::initialisation, .key = drawn_++, .first = begin});
}

Tensor Initialiser::constant(const Shape& shape, double value, DType dtype) {
  ++drawn_;  // a parameter like any other: key k belongs to parameter k
  return full(shape, value, dtype);
}

}  // namespace lockstep::layers

#pragma once
#include "core/random.h"
#include "core/tensor.h"

namespace lockstep::layers {

enum class Distribution { uniform, normal, truncated_normal };

/// How many inputs an output sums over, and how many outputs an input feeds.
struct Fans {
  int64_t in = 1, out = 1;
};
/// Of a matrix, however stored.
enum class MatrixLayout { out_in, in_out };
Fans matrix_fans(const Shape& weight, MatrixLayout layout = MatrixLayout::out_in);
/// Of a convolution's weight; its input extent is that of one group, so `groups` divides the
/// outputs.
enum class FilterLayout { ohwi, oihw, hwio };
Fans filter_fans(const Shape& weight, int64_t groups = 1, FilterLayout layout = FilterLayout::ohwi);

/// How a weight is drawn: a distribution with mean 0 and a standard deviation, given or by a rule.
struct WeightInit {
  enum class Rule {
    fixed,        ///< `sd` as it stands
    fan_in,       ///< variance 2 / fan-in (He et al. 2015, arXiv:1502.01852)
    fan_average,  ///< variance 2 / (fan-in + fan-out) (Glorot & Bengio 2010)
  };
  Rule rule = Rule::fan_average;
  Distribution distribution = Distribution::uniform;
  double sd = 0.02;
};
inline WeightInit normal(double sd) { return {WeightInit::Rule::fixed, Distribution::normal, sd}; }
double standard_deviation(const WeightInit& init, Fans fans);
/// The largest magnitude that can be drawn: √3 sd (uniform), 2 sd before correction (truncated
/// normal), infinity (normal).
double bound(Distribution distribution, double sd);

/// Draws the initial values of a model's parameters. The k-th call draws from key k of the
/// initialisation stream: values depend on the seed and the order of construction and on nothing
/// else, so all ranks build the same model. Give all ranks the same seed here.
class Initialiser {
 public:
  /// `first`: the key of the first call, for who draws a parameter that is not the first.
  explicit Initialiser(uint64_t seed, uint32_t first = 0) : seed_(seed), drawn_(first) {}
  /// A parameter by rule.
  Tensor weight(const Shape& shape, Fans fans, const WeightInit& init, DType dtype = DType::f32);
  Tensor draw(const Shape& shape, Distribution distribution, double sd, DType dtype = DType::f32);
  Tensor constant(const Shape& shape, double value, DType dtype = DType::f32);
  /// Draws an f32 parameter where it lies, uniform within ±bound; of one that is held in parts, the
  /// part that begins with its element `begin`.
  void uniform(const Tensor& out, double bound, int64_t begin = 0);

 private:
  void draw_normal(const Tensor& x, Distribution distribution, double sd);
  uint64_t seed_;
  uint32_t drawn_;
};

}  // namespace lockstep::layers

#pragma once
#include "core/dispatch.h"
#include "core/random.h"

/// Element-wise kernels. Outputs come first and are written; nothing here records. Shapes are equal
/// unless stated. An operand may be f32, f16 or bf16, each its own type, unless stated: arithmetic
/// is f32, each element is rounded once, to nearest even, when it is stored. An output may be the
/// same tensor as an input.
namespace lockstep::kernel {

/// Every element becomes `value`, rounded to the dtype. Any dtype.
inline constinit Kernel<void(const Tensor& out, double value)> fill{"fill"};
/// Same dtype, any dtype, same number of elements.
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> copy{"copy"};
/// Between floating dtypes: nearest even, overflow to infinity, NaN kept; between integers and to
/// float likewise. Float to integer truncates to the nearest number that fits; NaN gives 0.
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> cast{"cast"};

enum class Binary { add, subtract, multiply, divide };
/// out = a ∘ b with the usual broadcasting (dimensions aligned at the end, extent 1 stretches).
inline constinit Kernel<void(const Tensor& out, const Tensor& a, const Tensor& b, Binary)> binary{
    "binary"};
/// Sums x over the dimensions that `out` lacks or has with extent 1: the backward of broadcasting.
/// The order of additions is fixed; sums are rounded once.
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> sum_to{"sum_to"};

enum class Unary { exp, log, sqrt, tanh, relu, square, reciprocal };
inline constinit Kernel<void(const Tensor& out, const Tensor& x, Unary)> unary{"unary"};
/// dx = dy · f'(x); y = f(x) is given too, whichever is cheaper to use.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& y,
                             Unary)>
    unary_backward{"unary_backward"};

/// out = factor · x; between types, a cast that scales.
inline constinit Kernel<void(const Tensor& out, const Tensor& x, float factor)> scale{"scale"};
/// out += factor · x, with one rounding of the product, one of the sum and, where out is f16 or
/// bf16, one to its type.
inline constinit Kernel<void(const Tensor& out, const Tensor& x, float factor)> add_scaled{
    "add_scaled"};

/// Hendrycks & Gimpel 2016: x·Φ(x), exact (erf) or by the tanh formula.
enum class Gelu { exact, tanh };
inline constinit Kernel<void(const Tensor& out, const Tensor& x, Gelu)> gelu{"gelu"};
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x, Gelu)>
    gelu_backward{"gelu_backward"};
/// out[n, c] = gelu(x[n, c] + bias[c])
inline constinit Kernel<void(const Tensor& out, const Tensor& x, const Tensor& bias, Gelu)>
    bias_gelu{"bias_gelu"};
/// dx[n, c] = dy · gelu'(x + bias), dbias[c] = Σ_n dx; either may be undefined (not wanted), but
/// dispatch goes by dx, so pass dy's shape scratch there if only dbias is wanted.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& bias, Gelu)>
    bias_gelu_backward{"bias_gelu_backward"};

/// The backward of relu(x + bias) for [N, C] by its result y: dx = dy where y > 0, else 0; dbias[c]
/// = Σ_n dx[n, c], undefined where it is not wanted. Bits do not depend on the threads.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dbias, const Tensor& dy,
                             const Tensor& y)>
    bias_relu_backward{"bias_relu_backward"};

/// Inverted dropout: out = x / (1 - p) where the mask keeps, else 0. x is [samples, …]; sample s
/// draws from Random(seed, dropout, site) at positions keyed by (first_sample + s), so that any
/// split of a batch over ranks and micro-batches drops the same elements. Its own backward.
struct DropoutKey {
  uint64_t seed;
  uint32_t site;
  int64_t first_sample;
};
inline constinit Kernel<void(const Tensor& out, const Tensor& x, float p, DropoutKey)> dropout{
    "dropout"};

/// f32, uniform within ±bound: out[i] = bound · ((w + ½) / 2³¹ - 1), computed in double, where w is
/// word first + i of Random(seed, stream, key).
struct UniformKey {
  uint64_t seed;
  RandomStream stream;
  uint32_t key;
  int64_t first = 0;
};
inline constinit Kernel<void(const Tensor& out, double bound, UniformKey)> uniform{"uniform"};

}  // namespace lockstep::kernel

#pragma once
#include "core/dispatch.h"
#include "core/kernels/window.h"

/// Convolution of images [N, C, rows, columns] as neural networks use the word (cross-correlation,
/// with zeros around the image); of sequences where rows is 1. Operands are f32, f16 or bf16, each
/// its own type; sums are f32, each result is rounded once.
namespace lockstep::kernel {

struct Convolution {
  Plane stride, padding = {0, 0}, dilation;
  int64_t groups = 1;  ///< group g of the output channels sees group g of the input channels only
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

/// What conv2d makes of x [N, C, rows, columns] with weight [K, C / groups, window rows, window
/// columns]: [N, K, …]. UsageError where they do not fit. N may be 0, nothing else.
Shape conv2d_shape(const Shape& x, const Shape& weight, const Convolution& options);

/// y[n, k, i, j] = bias[k] + Σ_{c,u,v} weight[k, c, u, v] · x[n, group of k, c, i · stride -
/// padding
/// + u · dilation, likewise j and v]. bias [K] may be undefined.
inline constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& weight,
                             const Tensor& bias, const Convolution&)>
    conv2d{"conv2d"};
/// dx is overwritten; exactly 0 where no window looked.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                             const Convolution&)>
    conv2d_backward_input{"conv2d_backward_input"};
/// dweight and dbias (undefined: not wanted) are overwritten; zeros for an empty batch. Images are
/// added in a fixed order, so bits repeat for a given budget of threads.
inline constinit Kernel<void(const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Convolution&)>
    conv2d_backward_weight{"conv2d_backward_weight"};

}  // namespace lockstep::kernel

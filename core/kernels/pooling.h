#pragma once
#include "core/dispatch.h"
#include "core/kernels/window.h"

/// Windows over images [N, C, rows, columns], each of which gives one number a channel. Operands
/// are f32, f16 or bf16, each its own type; sums are f32 or wider, each result is rounded once.
namespace lockstep::kernel {

struct Pooling {
  Plane window, stride, padding = {0, 0};
  LastWindow last = LastWindow::inside;
};
/// Windows side by side.
constexpr Pooling tiles(int64_t side) { return {square(side), square(side)}; }

/// [N, C, rows, columns] of what pooling makes of x. UsageError where windows do not fit, or where
/// padding is more than half a window, which could then lie in it altogether. N may be 0.
Shape pool_shape(const Shape& x, const Pooling& options);

/// y = the largest element of each window, the first of equals; NaN where there is one. Padding
/// never wins. `places` (i32, of y's shape; undefined: not wanted) says which it was: row · columns
/// + column in the plane of x.
inline constinit Kernel<void(const Tensor& y, const Tensor& places, const Tensor& x,
                             const Pooling&)>
    max_pool{"max_pool"};
/// dx is overwritten: dy where an element was the largest, summed where windows overlap.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& places,
                             const Pooling&)>
    max_pool_backward{"max_pool_backward"};

/// What a mean divides by: the elements of the image in a window, or those of its padding, too.
/// What hangs over the padded image counts in neither.
enum class Divisor { image, padded };
inline constinit Kernel<void(const Tensor& y, const Tensor& x, const Pooling&, Divisor)>
    average_pool{"average_pool"};
/// dx is overwritten.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Pooling&, Divisor)>
    average_pool_backward{"average_pool_backward"};

}  // namespace lockstep::kernel

#pragma once
#include "core/kernels/convolution.h"
#include "tests/support/naive.h"

/// Convolution and pooling the plain way, in double.
namespace lockstep::naive {

/// f(index into y, index into weight, index into x) for every product of a convolution.
template <class F>
void each_product(const Shape& x, const Shape& w, const Shape& y, const kernel::Convolution& o,
                  F f) {
  const int64_t per_group = w[0] / o.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t i = 0; i < y[2]; ++i)
        for (int64_t j = 0; j < y[3]; ++j)
          for (int64_t c = 0; c < w[1]; ++c)
            for (int64_t u = 0; u < w[2]; ++u)
              for (int64_t v = 0; v < w[3]; ++v) {
                const int64_t row = i * o.stride.rows - o.padding.rows + u * o.dilation.rows,
                              column =
                                  j * o.stride.columns - o.padding.columns + v * o.dilation.columns;
                if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
                const int64_t channel = k / per_group * w[1] + c;
                f(((n * y[1] + k) * y[2] + i) * y[3] + j, ((k * w[1] + c) * w[2] + u) * w[3] + v,
                  ((n * x[1] + channel) * x[2] + row) * x[3] + column);
              }
}

struct Convolved {
  Values y, dx, dweight, dbias;
};
/// Forward, and backward with dy, of shape y_shape. bias may be empty.
inline Convolved convolution(const Values& x, const Shape& x_shape, const Values& w,
                             const Shape& w_shape, const Values& bias, const Values& dy,
                             const Shape& y_shape, const kernel::Convolution& o) {
  Convolved r{Values(dy.size()), Values(x.size()), Values(w.size()), Values(w_shape[0])};
  const int64_t plane = y_shape[2] * y_shape[3];
  for (size_t i = 0; i < dy.size(); ++i) {
    const int64_t k = static_cast<int64_t>(i) / plane % y_shape[1];
    r.dbias[k] += dy[i];
    if (!bias.empty()) r.y[i] = bias[k];
  }
  each_product(x_shape, w_shape, y_shape, o, [&](int64_t at_y, int64_t at_w, int64_t at_x) {
    r.y[at_y] += w[at_w] * x[at_x];
    r.dx[at_x] += w[at_w] * dy[at_y];
    r.dweight[at_w] += x[at_x] * dy[at_y];
  });
  return r;
}

}  // namespace lockstep::naive

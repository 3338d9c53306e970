#include "core/kernels/pooling.h"

#include <cmath>
#include <limits>

#include "core/kernels/cpu/floats.h"

namespace lockstep::kernel {

Shape pool_shape(const Shape& x, const Pooling& o) {
  check(x.rank() == 4, "[kernel.pool] expected images [N, C, rows, columns], got {}", x);
  check(o.padding.rows <= o.window.rows / 2 && o.padding.columns <= o.window.columns / 2,
        "[kernel.pool] padding; expected at most half of a window of {} x {}, got {} x {}",
        o.window.rows, o.window.columns, o.padding.rows, o.padding.columns);
  return {x[0], x[1],
          count_windows("pool", x[2], {o.window.rows, o.stride.rows, o.padding.rows, 1, o.last}),
          count_windows("pool", x[3],
                        {o.window.columns, o.stride.columns, o.padding.columns, 1, o.last})};
}

}  // namespace lockstep::kernel

namespace lockstep::cpu {
namespace {

using kernel::Divisor;
using kernel::Pooling;

// What window i covers of a dimension: [begin, end) of the image, and with the padding.
struct Span {
  int64_t begin, end, padded;
};
Span span(int64_t i, int64_t extent, int64_t window, int64_t stride, int64_t padding) {
  const int64_t begin = i * stride - padding, end = std::min(begin + window, extent + padding);
  return {std::max<int64_t>(begin, 0), std::min(end, extent), end - begin};
}

// Planes of x and of y, and f(at in y, rows, columns) for each window of one.
struct Planes {
  Planes(const Tensor& x, const Tensor& y, const Pooling& pooling)
      : of_x{x.size(2), x.size(3)},
        of_y{y.size(2), y.size(3)},
        options(pooling),
        count(x.size(0) * x.size(1)) {}
  template <class F>
  void each_window(F f) const {
    const auto& o = options;
    for (int64_t i = 0; i < of_y.rows; ++i) {
      const Span rows = span(i, of_x.rows, o.window.rows, o.stride.rows, o.padding.rows);
      for (int64_t j = 0; j < of_y.columns; ++j)
        f(i * of_y.columns + j, rows,
          span(j, of_x.columns, o.window.columns, o.stride.columns, o.padding.columns));
    }
  }
  int64_t grain() const { return row_grain(of_x.size() + of_y.size() * options.window.size()); }

  Plane of_x, of_y;
  Pooling options;
  int64_t count;
};

void expect_pooling(std::string_view name, const Tensor& y, const Tensor& x,
                    const Pooling& options) {
  expect_floats(name, {&y, &x});
  expect_shape(name, "what pooling gives", y, kernel::pool_shape(x.shape(), options));
}
void expect_places(std::string_view name, const Tensor& places, const Tensor& y, const Plane& x) {
  expect_dtype(name, "places", places, DType::i32);
  expect_shape(name, "places", places, y.shape());
  check(x.size() <= std::numeric_limits<int32_t>::max(),
        "[kernel.{}] a plane of {} x {} has more places than i32 counts", name, x.rows, x.columns);
}

// f(to, from, plane) for every plane, both as floats.
template <class F>
void map_planes(const Planes& planes, const Tensor& to, int64_t to_size, const Tensor& from,
                int64_t from_size, F f) {
  const FloatsIn in(from);
  const FloatsOut out(to);
  const RowRooms rooms(any_narrow(in, out), 2, std::max(to_size, from_size), planes.count,
                       planes.grain());
  parallel_for(planes.count, planes.grain(), [&](int64_t begin, int64_t end, int piece) {
    for (int64_t plane = begin; plane < end; ++plane) {
      float* at = out.place(plane * to_size, rooms.row(piece, 0));
      f(at, in.read(plane * from_size, from_size, rooms.row(piece, 1)), plane);
      out.write(plane * to_size, to_size, at);
    }
  });
}

void max_pool(const Tensor& y, const Tensor& places, const Tensor& x, const Pooling& options) {
  expect_pooling("max_pool", y, x, options);
  const Planes planes(x, y, options);
  if (places.defined()) expect_places("max_pool", places, y, planes.of_x);
  int32_t* where = places.defined() ? places.mutable_data<int32_t>() : nullptr;
  const int64_t columns = planes.of_x.columns, outputs = planes.of_y.size();
  map_planes(planes, y, outputs, x, planes.of_x.size(),
             [&](float* to, const float* from, int64_t plane) {
               planes.each_window([&](int64_t at, const Span& rows, const Span& cols) {
                 int64_t best = rows.begin * columns + cols.begin;
                 for (int64_t r = rows.begin; r < rows.end; ++r)
                   for (int64_t i = r * columns + cols.begin; i < r * columns + cols.end; ++i)
                     if (from[i] > from[best] || (std::isnan(from[i]) && !std::isnan(from[best])))
                       best = i;
                 to[at] = from[best];
                 if (where != nullptr) where[plane * outputs + at] = static_cast<int32_t>(best);
               });
             });
}

void max_pool_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                       const Pooling& options) {
  constexpr std::string_view kName = "max_pool_backward";
  expect_pooling(kName, dy, dx, options);
  const Planes planes(dx, dy, options);
  expect_places(kName, places, dy, planes.of_x);
  const int32_t* where = places.data<int32_t>();
  const int64_t inputs = planes.of_x.size(), outputs = planes.of_y.size();
  for (int64_t i = 0; i < places.numel(); ++i)
    check(where[i] >= 0 && where[i] < inputs,
          "[kernel.{}] place {}; expected one of {} of a plane, got {}", kName, i, inputs,
          where[i]);
  map_planes(planes, dx, inputs, dy, outputs, [&](float* to, const float* from, int64_t plane) {
    std::fill_n(to, inputs, 0.0f);
    for (int64_t i = 0; i < outputs; ++i) to[where[plane * outputs + i]] += from[i];
  });
}

double divided_by(Divisor divisor, const Span& rows, const Span& columns) {
  return static_cast<double>(divisor == Divisor::padded
                                 ? rows.padded * columns.padded
                                 : (rows.end - rows.begin) * (columns.end - columns.begin));
}

void average_pool(const Tensor& y, const Tensor& x, const Pooling& options, Divisor divisor) {
  expect_pooling("average_pool", y, x, options);
  const Planes planes(x, y, options);
  const int64_t columns = planes.of_x.columns;
  map_planes(planes, y, planes.of_y.size(), x, planes.of_x.size(),
             [&](float* to, const float* from, int64_t) {
               planes.each_window([&](int64_t at, const Span& rows, const Span& cols) {
                 double sum = 0;
                 for (int64_t r = rows.begin; r < rows.end; ++r)
                   for (int64_t i = r * columns + cols.begin; i < r * columns + cols.end; ++i)
                     sum += from[i];
                 to[at] = static_cast<float>(sum / divided_by(divisor, rows, cols));
               });
             });
}

void average_pool_backward(const Tensor& dx, const Tensor& dy, const Pooling& options,
                           Divisor divisor) {
  expect_pooling("average_pool_backward", dy, dx, options);
  const Planes planes(dx, dy, options);
  const int64_t columns = planes.of_x.columns, inputs = planes.of_x.size();
  map_planes(planes, dx, inputs, dy, planes.of_y.size(),
             [&](float* to, const float* from, int64_t) {
               std::fill_n(to, inputs, 0.0f);
               planes.each_window([&](int64_t at, const Span& rows, const Span& cols) {
                 const auto each = static_cast<float>(from[at] / divided_by(divisor, rows, cols));
                 for (int64_t r = rows.begin; r < rows.end; ++r)
                   for (int64_t i = r * columns + cols.begin; i < r * columns + cols.end; ++i)
                     to[i] += each;
               });
             });
}

const Provide provided[] = {
    {kernel::max_pool, DeviceType::cpu, max_pool},
    {kernel::max_pool_backward, DeviceType::cpu, max_pool_backward},
    {kernel::average_pool, DeviceType::cpu, average_pool},
    {kernel::average_pool_backward, DeviceType::cpu, average_pool_backward},
};

}  // namespace
}  // namespace lockstep::cpu

#include "core/kernels/pooling.h"

#include <cmath>
#include <limits>

#include "tests/support/kernel_test.h"
#include "tests/support/precision.h"

namespace lockstep::test {
namespace {

using kernel::Divisor;
using kernel::LastWindow;
using kernel::Pooling;
using Floats = std::vector<float>;

// A sequence under a window of `window`: one row.
Pooling along(int64_t window, int64_t stride, int64_t padding = 0,
              LastWindow last = LastWindow::inside) {
  return {{1, window}, {1, stride}, {0, padding}, last};
}
Tensor sequence(const Floats& v) {
  return from_values(v, {1, 1, 1, static_cast<int64_t>(v.size())});
}

struct MaxPooled {
  Tensor y, places;
};
MaxPooled max_pool(const Tensor& x, const Pooling& o, DType dtype = DType::f32) {
  const Shape shape = kernel::pool_shape(x.shape(), o);
  const MaxPooled p{full(shape, NAN, dtype), full(shape, -1, DType::i32)};
  kernel::max_pool(p.y, p.places, x, o);
  return p;
}
Tensor average_pool(const Tensor& x, const Pooling& o, Divisor divisor, DType dtype = DType::f32) {
  const Tensor y = full(kernel::pool_shape(x.shape(), o), NAN, dtype);
  kernel::average_pool(y, x, o, divisor);
  return y;
}
Floats of(const Tensor& x) { return values(x); }
Shape outputs(int64_t rows, int64_t columns, const Pooling& o) {
  return kernel::pool_shape({1, 1, rows, columns}, o);
}

TEST(KnownFaults, O39_MaxPoolingIsPaddedWithNothing) {
  for (LastWindow last : {LastWindow::inside, LastWindow::overhanging})
    EXPECT_EQ(of(max_pool(sequence({-1, -2, -3, -4, -5}), along(2, 2, 1, last)).y),
              (Floats{-1, -2, -4}));
}
TEST(KnownFaults, O39_OutputSizesOfOverhangingWindows) {
  constexpr auto kCeil = LastWindow::overhanging;
  EXPECT_EQ(outputs(6, 7, {square(1), square(2), square(0), kCeil}), (Shape{1, 1, 3, 4}));
  EXPECT_EQ(outputs(1, 5, along(3, 3, 1, kCeil)), (Shape{1, 1, 1, 2}));
  const Tensor x = sequence({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(of(max_pool(x, along(3, 2, 0, kCeil)).y), (Floats{2, 4, 5}));
  EXPECT_EQ(of(max_pool(x, along(3, 2)).y), (Floats{2, 4}));
}
TEST(KnownFaults, O39_DivisorsOfMeans) {
  const Tensor x = sequence({1, 2, 3, 4, 5});
  for (Divisor divisor : {Divisor::image, Divisor::padded})
    EXPECT_EQ(of(average_pool(x, along(2, 2, 0, LastWindow::overhanging), divisor)),
              (Floats{1.5, 3.5, 5}));
  EXPECT_EQ(of(average_pool(x, along(3, 2, 1), Divisor::padded)), (Floats{1, 3, 3}));
  EXPECT_EQ(of(average_pool(x, along(3, 2, 1), Divisor::image)), (Floats{1.5, 3, 4.5}));
}
TEST(KnownFaults, O39_WindowsThatDoNotFitAreRefused) {
  EXPECT_EQ(error_of([] { outputs(1, 5, along(3, 1, 2)); }),
            "[kernel.pool] padding; expected at most half of a window of 1 x 3, got 0 x 2");
  EXPECT_EQ(error_of([] { outputs(1, 5, along(8, 1, 1)); }),
            "[kernel.pool] a window that reaches over 8 does not fit into 5 and twice 1 of "
            "padding");
}

const Pooling kPoolings[] = {
    kernel::tiles(2),
    {square(3), square(2), square(1)},
    {square(3), square(2), square(1), LastWindow::overhanging},
    {{2, 5}, {1, 3}, {1, 2}, LastWindow::overhanging},
    {square(1), square(3)},
};

class Pools : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Pools);

// By asking of every element whether a window covers it.
TEST_P(Pools, AgreeWithPlainLoops) {
  const Shape of_x{3, 5, 9, 11};
  const Tensor x = random_tensor(of_x, 1);
  for (const Pooling& o : kPoolings) {
    const Shape of_y = kernel::pool_shape(of_x, o);
    const Tensor dy = random_tensor(of_y, 2);
    const auto in = doubles(x), d = doubles(dy);
    const auto run = [&](Divisor divisor, auto f) {
      for (int64_t i = 0; i < of_y.numel(); ++i) {
        const int64_t column = i % of_y[3], row = i / of_y[3] % of_y[2],
                      plane = i / of_y[3] / of_y[2];
        std::vector<int64_t> seen;
        int64_t padded = 0;
        for (int64_t u = 0; u < o.window.rows; ++u)
          for (int64_t v = 0; v < o.window.columns; ++v) {
            const int64_t r = row * o.stride.rows - o.padding.rows + u,
                          c = column * o.stride.columns - o.padding.columns + v;
            padded += r < 9 + o.padding.rows && c < 11 + o.padding.columns;
            if (r >= 0 && r < 9 && c >= 0 && c < 11) seen.push_back(plane * 99 + r * 11 + c);
          }
        f(i, seen, divisor == Divisor::padded ? padded : static_cast<int64_t>(seen.size()));
      }
    };
    for (Divisor divisor : {Divisor::image, Divisor::padded}) {
      std::vector<double> y(d.size()), dx(in.size());
      run(divisor, [&](int64_t i, const std::vector<int64_t>& seen, int64_t by) {
        for (int64_t at : seen) y[i] += in[at] / static_cast<double>(by);
        for (int64_t at : seen) dx[at] += d[i] / static_cast<double>(by);
      });
      expect_close(average_pool(x, o, divisor), y, 1e-6, 1e-6);
      const Tensor got = full(of_x, NAN);
      kernel::average_pool_backward(got, dy, o, divisor);
      expect_close(got, dx, 1e-6, 1e-6);
    }
    std::vector<double> y(d.size()), dx(in.size());
    run(Divisor::image, [&](int64_t i, const std::vector<int64_t>& seen, int64_t) {
      int64_t best = seen.at(0);
      for (int64_t at : seen)
        if (in[at] > in[best]) best = at;
      y[i] = in[best];
      dx[best] += d[i];
    });
    const auto [got, places] = max_pool(x, o);
    expect_close(got, y, 0, 0);
    const Tensor gradient = full(of_x, NAN);
    kernel::max_pool_backward(gradient, dy, places, o);
    expect_close(gradient, dx, 1e-6, 1e-6);
  }
}

TEST_P(Pools, TakeEveryFloatingType) {
  const Pooling o{square(3), square(2), square(1), LastWindow::overhanging};
  const Shape of_x{2, 7, 9, 10}, of_y = kernel::pool_shape(of_x, o);
  const auto wide = [](const Tensor& t) { return in_dtype(t, DType::f32); };
  for (DType a : kFloating)
    for (DType b : kFloating) {
      const Tensor x = in_dtype(random_tensor(of_x, 1), a),
                   dy = in_dtype(random_tensor(of_y, 2), a);
      const auto [y, places] = max_pool(x, o, b);
      const auto [wide_y, wide_places] = max_pool(wide(x), o);
      EXPECT_EQ(floats(y), floats(in_dtype(wide_y, b)));
      EXPECT_EQ(values<int32_t>(places), values<int32_t>(wide_places));
      EXPECT_EQ(floats(average_pool(x, o, Divisor::image, b)),
                floats(in_dtype(average_pool(wide(x), o, Divisor::image), b)));
      const Tensor dx = full(of_x, NAN, b), wide_dx = full(of_x, NAN);
      kernel::max_pool_backward(dx, dy, places, o);
      kernel::max_pool_backward(wide_dx, wide(dy), places, o);
      EXPECT_EQ(floats(dx), floats(in_dtype(wide_dx, b)));
      kernel::average_pool_backward(dx, dy, o, Divisor::padded);
      kernel::average_pool_backward(wide_dx, wide(dy), o, Divisor::padded);
      EXPECT_EQ(floats(dx), floats(in_dtype(wide_dx, b)));
    }
}

TEST(Pooling, TheFirstOfEqualsAndEveryNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto [y, places] = max_pool(sequence({3, 3, -kInf, -kInf, 1, NAN, 2, NAN}), along(2, 2));
  const Floats got = of(y);
  EXPECT_EQ(got[0], 3);
  EXPECT_EQ(got[1], -kInf);
  EXPECT_TRUE(std::isnan(got[2]) && std::isnan(got[3]));
  EXPECT_EQ(values<int32_t>(places), (std::vector<int32_t>{0, 2, 5, 7}));
}

TEST(Pooling, NoPlacesAndNoImages) {
  const Tensor y = full({1, 1, 1, 2}, NAN);
  kernel::max_pool(y, {}, sequence({1, 4, 2, 3}), along(2, 2));
  EXPECT_EQ(of(y), (Floats{4, 3}));
  EXPECT_EQ(max_pool(zeros({0, 3, 4, 4}), kernel::tiles(2)).y.shape(), (Shape{0, 3, 2, 2}));
  const Tensor dx = zeros({0, 3, 4, 4});
  kernel::average_pool_backward(dx, zeros({0, 3, 2, 2}), kernel::tiles(2), Divisor::image);
}

TEST(Pooling, WrongOperandsAreRefused) {
  const Tensor x = zeros({1, 1, 4, 4}), y = zeros({1, 1, 2, 2}), dx = zeros({1, 1, 4, 4});
  EXPECT_THROW(kernel::pool_shape({1, 4, 4}, kernel::tiles(2)), UsageError);
  EXPECT_THROW(kernel::pool_shape({1, 1, 4, 4}, kernel::tiles(0)), UsageError);
  EXPECT_THROW(kernel::average_pool(zeros({1, 1, 2, 3}), x, kernel::tiles(2), Divisor::image),
               UsageError);
  EXPECT_THROW(kernel::max_pool(y, zeros({1, 1, 2, 2}), x, kernel::tiles(2)), UsageError);
  const Tensor places = from_values<int32_t>({0, 1, 16, 2}, {1, 1, 2, 2});
  EXPECT_EQ(error_of([&] { kernel::max_pool_backward(dx, y, places, kernel::tiles(2)); }),
            "[kernel.max_pool_backward] place 2; expected one of 16 of a plane, got 16");
}

}  // namespace
}  // namespace lockstep::test

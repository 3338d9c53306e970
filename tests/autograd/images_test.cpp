// Convolution and pooling: gradient checks, the known faults in numbers, nothing and views.
#include <gtest/gtest.h>

#include <limits>

#include "autograd/autocast.h"
#include "autograd/gradcheck.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "core/parallel.h"
#include "tests/support/tensors.h"

namespace lockstep::ops {
namespace {

using autograd::gradcheck;
using kernel::Convolution;
using kernel::Divisor;
using kernel::LastWindow;
using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::randn;
using In = const std::vector<Tensor>&;

TEST(Gradcheck, Conv2d) {
  const Convolution options[] = {{},
                                 {.stride = square(2), .padding = square(1)},
                                 {.stride = {1, 2}, .padding = {2, 0}, .dilation = {2, 1}},
                                 {.padding = square(1), .groups = 2}};
  for (const Convolution& o : options) {
    const std::vector<Tensor> in = {randn({2, 4, 5, 6}, 1), randn({4, 4 / o.groups, 3, 2}, 2),
                                    randn({4}, 3)};
    EXPECT_EQ(gradcheck([&](In x) { return conv2d(x[0], x[1], x[2], o); }, in), "");
    EXPECT_EQ(gradcheck([&](In x) { return conv2d(x[0], x[1], {}, o); }, {in[0], in[1]}), "");
  }
}
TEST(Gradcheck, Conv2dWithFrozenParts) {
  const Tensor x = randn({2, 3, 4, 4}, 1), w = randn({2, 3, 3, 3}, 2), b = randn({2}, 3);
  EXPECT_EQ(gradcheck([&](In in) { return conv2d(in[0], w, b); }, {x}), "");
  EXPECT_EQ(gradcheck([&](In in) { return conv2d(x, in[0], b); }, {w}), "");
  EXPECT_EQ(gradcheck([&](In in) { return conv2d(x, w, in[0]); }, {b}), "");
}
TEST(Gradcheck, Pooling) {
  const kernel::Pooling options[] = {kernel::tiles(2),
                                     {square(3), square(2), square(1), LastWindow::overhanging},
                                     {{2, 3}, {1, 2}, {1, 1}}};
  for (const kernel::Pooling& o : options) {
    EXPECT_EQ(gradcheck([&](In x) { return max_pool(x[0], o); }, {randn({2, 2, 5, 6}, 1, 5)}), "");
    for (Divisor d : {Divisor::image, Divisor::padded})
      EXPECT_EQ(gradcheck([&](In x) { return average_pool(x[0], o, d); }, {randn({2, 2, 5, 6}, 1)}),
                "");
  }
  EXPECT_EQ(gradcheck([](In x) { return global_average_pool(x[0]); }, {randn({2, 3, 3, 4}, 1)}),
            "");
  EXPECT_EQ(gradcheck([](In x) { return flatten(x[0]); }, {randn({2, 3, 2}, 1)}), "");
}

// y, and the gradients of all inputs for an upstream one.
struct Results {
  Tensor y, dx, dweight, dbias;
};
Results convolve(const Tensor& x, const Tensor& w, const Floats& upstream,
                 const Convolution& options) {
  const Tensor b = zeros({w.size(0)});
  for (const Tensor& leaf : {x, w, b}) autograd::require_grad(leaf);
  const Tensor y = conv2d(x, w, b, options);
  autograd::backward(y, from_values(upstream, y.shape()));
  return {y, autograd::grad(x), autograd::grad(w), autograd::grad(b)};
}

TEST(KnownFaults, O40_StrideThatDoesNotFitAndGroups) {
  for (int threads : {1, 2}) {
    const ThreadBudget budget(threads);
    const Floats images = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};
    const auto grouped = convolve(from_values(images, {1, 2, 1, 6}),
                                  from_values<float>({1, 2, 3, -1, 0, 1}, {2, 1, 1, 3}),
                                  {1, 10, 2, 0}, {.stride = {1, 2}, .groups = 2});
    EXPECT_EQ(values(grouped.y), (Floats{14, 26, 20, 20}));
    EXPECT_EQ(values(grouped.dweight), (Floats{31, 42, 53, 20, 40, 60}));
    EXPECT_EQ(values(grouped.dx), (Floats{1, 2, 13, 20, 30, 0, -2, 0, 2, 0, 0, 0}));
    EXPECT_EQ(values(grouped.dbias), (Floats{11, 2}));
    const auto whole =
        convolve(from_values(images, {1, 2, 1, 6}),
                 from_values<float>({1, 2, 3, 0, 0, 0, 0, 0, 0, -1, 0, 1}, {2, 2, 1, 3}),
                 {1, 10, 2, 0}, {.stride = {1, 2}});
    EXPECT_EQ(values(whole.y), values(grouped.y));
    EXPECT_EQ(values(whole.dx), values(grouped.dx));
    const Floats d = values(whole.dweight);
    EXPECT_EQ((Floats{d[0], d[1], d[2], d[9], d[10], d[11]}), values(grouped.dweight));
  }
}
TEST(KnownFaults, O40_Dilation) {
  const auto r = convolve(from_values<float>({1, 2, 3, 4, 5, 6}, {1, 1, 1, 6}),
                          from_values<float>({1, 10}, {1, 1, 1, 2}), {1, 10, 100},
                          {.stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 3}});
  EXPECT_EQ(values(r.y), (Floats{30, 52, 4}));
  EXPECT_EQ(values(r.dweight), (Floats{420, 53}));
  EXPECT_EQ(values(r.dx), (Floats{0, 10, 10, 100, 100, 0}));
}
TEST(KnownFaults, O40_EmptyBatch) {
  const Tensor x = zeros({0, 3, 5, 5}), w = randn({4, 3, 3, 3}, 1), b = randn({4}, 2);
  for (const Tensor& leaf : {x, w, b})
    autograd::require_grad(leaf).grad =
        full(leaf.shape(), std::numeric_limits<double>::quiet_NaN());
  const Tensor y = conv2d(x, w, b, {.stride = square(2), .padding = square(1)});
  EXPECT_EQ(y.shape(), (Shape{0, 4, 3, 3}));
  const Tensor pooled = max_pool(average_pool(y, {square(2), square(1)}), kernel::tiles(2));
  EXPECT_EQ(pooled.shape(), (Shape{0, 4, 1, 1}));
  EXPECT_EQ(global_average_pool(y).shape(), (Shape{0, 4}));
  autograd::backward(sum(flatten(pooled)));
  EXPECT_EQ(values(autograd::grad(w)), Floats(w.numel(), 0.0f));
  EXPECT_EQ(values(autograd::grad(b)), Floats(4, 0.0f));
  EXPECT_EQ(autograd::grad(x).numel(), 0);
}
TEST(KnownFaults, O40_GroupsThatDoNotDivide) {
  const Tensor x = zeros({1, 3, 5, 5});
  EXPECT_THROW(conv2d(x, zeros({4, 1, 3, 3}), {}, {.groups = 2}), UsageError);
  EXPECT_THROW(conv2d(x, zeros({4, 1, 3, 3}), {}, {.groups = 3}), UsageError);
}

// Memory holds 0..7 as [N = 2][L = 2][C = 2]. Tensors are dense: [N, C, L] is a copy, whose
// channels have means 3 and 4, and a rank's share of it is a view that starts in the middle.
TEST(KnownFaults, O15_ImagesThatWerePermutedOrSliced) {
  const Tensor x = from_values<float>({0, 2, 1, 3, 4, 6, 5, 7}, {2, 2, 1, 2});
  EXPECT_EQ(values(global_average_pool(x)), (Floats{1, 2, 5, 6}));
  const Tensor w = randn({3, 2, 1, 2}, 1), b = randn({3}, 2);
  Floats seen[2];
  for (int whole : {0, 1}) {
    const Tensor in = randn({4, 2, 3, 5}, 3), weight = w.slice_as_root(0, w.shape());
    for (const Tensor& leaf : {in, weight}) autograd::require_grad(leaf);
    const auto all = [&](const Tensor& images) {
      return sum(
          multiply(max_pool(conv2d(images, weight, b), kernel::tiles(2)), randn({2, 3, 1, 2}, 4)));
    };
    if (whole)
      autograd::backward(all(slice(in, 2, 4)));
    else
      autograd::backward(all(from_values(values(in.slice(2, 4)), {2, 2, 3, 5})));
    seen[whole] = values(autograd::grad(weight));
    if (whole) {
      const Floats dx = values(autograd::grad(in));
      EXPECT_EQ(Floats(dx.begin(), dx.begin() + 60), Floats(60, 0.0f));
      EXPECT_NE(Floats(dx.begin() + 60, dx.end()), Floats(60, 0.0f));
    }
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(Conv2d, ComputesInTheDtypeOfAutocast) {
  const Tensor x = randn({2, 3, 6, 6}, 1), w = randn({4, 3, 3, 3}, 2), b = randn({4}, 3);
  for (const Tensor& leaf : {x, w, b}) autograd::require_grad(leaf);
  const Tensor exact = conv2d(x, w, b);
  for (DType t : {DType::f16, DType::bf16}) {
    const autograd::Autocast low(t);
    const Tensor y = conv2d(x, w, b);
    EXPECT_EQ(y.dtype(), t);
    const Tensor wide = Tensor::empty(y.shape());
    kernel::cast(wide, y);
    EXPECT_TRUE(near(wide, exact, t == DType::f16 ? 2e-3 : 2e-2));
    EXPECT_FALSE(near(wide, exact, 1e-6));
  }
}

}  // namespace
}  // namespace lockstep::ops

#include "core/kernels/convolution.h"

#include <future>

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive_images.h"
#include "tests/support/precision.h"

namespace lockstep::test {
namespace {

using kernel::Convolution;

struct Case {
  Shape x, weight;
  Convolution options;
};

std::string name_of(const Case& c) {
  const auto& o = c.options;
  return fmt::format("{} * {}, stride {}x{}, padding {}x{}, dilation {}x{}, {} groups", c.x,
                     c.weight, o.stride.rows, o.stride.columns, o.padding.rows, o.padding.columns,
                     o.dilation.rows, o.dilation.columns, o.groups);
}

// Everything a convolution gives, in outputs that were NaN.
struct Passes {
  Tensor y, dx, dweight, dbias;
  std::vector<Tensor> all() const { return {y, dx, dweight, dbias}; }
};
Passes run(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& dy,
           const Convolution& o, DType dtype = DType::f32) {
  const Passes p{full(dy.shape(), NAN, dtype), full(x.shape(), NAN, dtype),
                 full(w.shape(), NAN, dtype), full({w.size(0)}, NAN, dtype)};
  kernel::conv2d(p.y, x, w, bias, o);
  kernel::conv2d_backward_input(p.dx, dy, w, o);
  kernel::conv2d_backward_weight(p.dweight, p.dbias, dy, x, o);
  return p;
}

const std::vector<Case> kCases = {
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{2, 3, 7, 9}, {5, 3, 3, 3}, {.padding = square(1)}},
    {{3, 16, 8, 8}, {32, 16, 3, 3}, {.stride = square(2), .padding = square(1)}},
    {{2, 16, 8, 8}, {32, 16, 1, 1}, {.stride = square(2)}},
    {{37, 16, 16, 16}, {16, 16, 3, 3}, {.padding = square(1)}},  // several runs and a rest
    // Own loops: rows of whole vectors or not, planes of one vector and many, outputs that fill no
    // tile, images alone and several together.
    {{2, 3, 32, 32}, {16, 3, 3, 3}, {.padding = square(1)}},
    {{3, 5, 5, 48}, {11, 5, 3, 3}, {.padding = square(1)}},
    {{27, 16, 8, 8}, {13, 16, 3, 3}, {.padding = square(1)}},
    {{3, 2, 24, 24}, {3, 2, 3, 3}, {.padding = square(1)}},
    {{2, 3, 8, 2}, {1, 3, 3, 3}, {.padding = square(1)}},
    {{2, 1, 1, 16}, {9, 1, 3, 3}, {.padding = square(1)}},
    {{2, 32, 4, 4}, {32, 32, 3, 3}, {.padding = square(1)}},
    {{5, 6, 1, 31}, {8, 6, 1, 5}, {.stride = {1, 3}, .padding = {0, 2}}},
    {{2, 4, 11, 6}, {6, 2, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}},
    {{2, 9, 6, 6}, {9, 1, 3, 3}, {.padding = square(1), .groups = 9}},  // depthwise
    {{2, 32, 6, 6}, {32, 1, 3, 3}, {.padding = square(1), .groups = 32}},
    {{2, 3, 12, 13}, {4, 3, 3, 3}, {.padding = {2, 3}, .dilation = {2, 3}}},
    {{2, 6, 12, 13}, {4, 3, 3, 2}, {.stride = {2, 3}, .dilation = {3, 4}, .groups = 2}},
    {{1, 2, 3, 3}, {2, 2, 2, 2}, {.stride = square(3), .padding = square(4)}},  // windows of zeros
    {{2, 17, 5, 5}, {33, 17, 3, 3}, {.stride = square(7), .padding = square(1)}},
    {{1, 3, 4, 4}, {2, 3, 4, 4}, {}},
};

class Convolutions : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Convolutions);

TEST_P(Convolutions, AgreeWithPlainLoops) {
  for (const Case& c : kCases) {
    const Tensor x = random_tensor(c.x, 1), w = random_tensor(c.weight, 2),
                 bias = random_tensor({c.weight[0]}, 3);
    const Tensor dy = random_tensor(kernel::conv2d_shape(c.x, c.weight, c.options), 4);
    const auto expected = naive::convolution(doubles(x), c.x, doubles(w), c.weight, doubles(bias),
                                             doubles(dy), dy.shape(), c.options);
    const Passes got = run(x, w, bias, dy, c.options);
    const double of_x = static_cast<double>(c.weight.numel() / c.weight[0]),
                 of_w = static_cast<double>(dy.numel() / dy.size(1));
    expect_close(got.y, expected.y, 1e-5, 1e-6 * std::sqrt(of_x), "y of " + name_of(c));
    expect_close(got.dx, expected.dx, 1e-5, 1e-6 * std::sqrt(of_x * c.weight[0]),
                 "dx of " + name_of(c));
    expect_close(got.dweight, expected.dweight, 1e-5, 4e-6 * std::sqrt(of_w),
                 "dweight of " + name_of(c));
    expect_close(got.dbias, expected.dbias, 1e-5, 1e-6 * std::sqrt(of_w), "dbias of " + name_of(c));
  }
}

TEST_P(Convolutions, WithoutBias) {
  const Tensor x = random_tensor({3, 4, 6, 5}, 1), w = random_tensor({7, 4, 3, 3}, 2),
               dy = random_tensor({3, 7, 4, 3}, 3);
  const auto expected = naive::convolution(doubles(x), x.shape(), doubles(w), w.shape(), {},
                                           doubles(dy), dy.shape(), {});
  const Tensor y = full(dy.shape(), NAN), dw = full(w.shape(), NAN);
  kernel::conv2d(y, x, w, {}, {});
  kernel::conv2d_backward_weight(dw, {}, dy, x, {});
  expect_close(y, expected.y, 1e-5, 1e-5);
  expect_close(dw, expected.dweight, 1e-5, 1e-5);
}

// Also the same where an image is alone or among others: what it gives does not depend on them.
TEST_P(Convolutions, RepeatBitForBitAndImagesDoNotMeet) {
  const Shape shape{37, 16, 16, 16};
  const Convolution o{.padding = square(1)};
  const Tensor x = random_tensor(shape, 1), w = random_tensor({16, 16, 3, 3}, 2),
               dy = random_tensor(shape, 3), bias = random_tensor({16}, 4);
  const auto once = run(x, w, bias, dy, o).all(), again = run(x, w, bias, dy, o).all();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(values(once[i]), values(again[i])) << i;
  const auto part = run(x.slice(30, 33), w, bias, dy.slice(30, 33), o);
  EXPECT_EQ(values(part.y), values(once[0].slice(30, 33)));
  EXPECT_EQ(values(part.dx), values(once[1].slice(30, 33)));
}

// The bits of the f32 call on widened operands, rounded once.
void expect_every_type(const Shape& of_x, const Shape& of_w, const Convolution& o) {
  const Shape of_y = kernel::conv2d_shape(of_x, of_w, o);
  const DType types[] = {DType::f32, DType::f16, DType::bf16};
  for (DType a : types)
    for (DType b : types) {
      const Tensor x = in_dtype(random_tensor(of_x, 1), a), w = in_dtype(random_tensor(of_w, 2), b),
                   bias = in_dtype(random_tensor({of_w[0]}, 3), a),
                   dy = in_dtype(random_tensor(of_y, 4), b);
      const auto wide = [](const Tensor& t) { return in_dtype(t, DType::f32); };
      const auto expected = run(wide(x), wide(w), wide(bias), wide(dy), o).all();
      for (DType c : types) {
        const auto got = run(x, w, bias, dy, o, c).all();
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_EQ(values(wide(got[i])), values(wide(in_dtype(expected[i], c))))
              << lockstep::name_of(a) << " " << lockstep::name_of(b) << " " << lockstep::name_of(c)
              << " result " << i;
      }
    }
}

TEST_P(Convolutions, TakeEveryFloatingType) {
  expect_every_type({20, 16, 16, 16}, {24, 8, 3, 3},
                    {.stride = square(2), .padding = square(1), .groups = 2});
  expect_every_type({13, 6, 8, 8}, {12, 6, 3, 3}, {.padding = square(1)});
}

TEST(ConvolutionThreads, ManyMayConvolveAtOnceAndAgree) {
  const Tensor x = random_tensor({4, 8, 9, 9}, 1), w = random_tensor({8, 8, 3, 3}, 2),
               dy = random_tensor({4, 8, 7, 7}, 3), bias = random_tensor({8}, 4);
  const ThreadBudget one(1);
  const auto expected = run(x, w, bias, dy, {}).all();
  std::vector<std::future<std::vector<Tensor>>> runs;
  for (int i = 0; i < 4; ++i)
    runs.push_back(std::async(std::launch::async, [&] {
      const ThreadBudget mine(1);
      for (int j = 0; j < 20; ++j) run(x, w, bias, dy, {});
      return run(x, w, bias, dy, {}).all();
    }));
  for (auto& r : runs) {
    const auto got = r.get();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(values(got[i]), values(expected[i]));
  }
}

TEST(ConvolutionErrors, SayWhatWasExpected) {
  const auto of = [](Shape x, Shape w, Convolution o) {
    return error_of([=] { kernel::conv2d_shape(x, w, o); });
  };
  EXPECT_EQ(of({2, 3, 5, 5}, {4, 1, 3, 3}, {.groups = 2}),
            "[kernel.conv2d] groups; expected a divisor of 3 input and 4 output channels, got 2");
  EXPECT_NE(of({2, 4, 5, 5}, {3, 2, 3, 3}, {.groups = 2}), "");
  EXPECT_NE(of({2, 4, 5, 5}, {4, 4, 3, 3}, {.groups = 0}), "");
  EXPECT_EQ(of({2, 4, 5, 5}, {4, 3, 3, 3}, {}),
            "[kernel.conv2d] channels of a weight [4, 3, 3, 3] for images [2, 4, 5, 5]; expected 4 "
            "in each of 1 groups");
  EXPECT_EQ(of({2, 4, 5, 5}, {4, 4, 3, 3}, {.dilation = square(3)}),
            "[kernel.conv2d] a window that reaches over 7 does not fit into 5 and twice 0 of "
            "padding");
  EXPECT_NE(of({2, 4, 5}, {4, 4, 3, 3}, {}), "");
  EXPECT_NE(of({2, 0, 5, 5}, {4, 0, 3, 3}, {}), "");
  EXPECT_NE(of({2, 4, 0, 5}, {4, 4, 1, 1}, {}), "");
  EXPECT_NE(of({2, 4, 5, 5}, {4, 4, 3, 3}, {.stride = {0, 1}}), "");
  EXPECT_NE(of({2, 4, 5, 5}, {4, 4, 3, 3}, {.padding = {0, -1}}), "");
  EXPECT_NE(of({2, 4, 5, 5}, {4, 4, 3, 3}, {.dilation = {1, INT64_MAX}}), "");
  EXPECT_NE(of({2, 4, 5, 5}, {4, 4, 3, 3}, {.padding = {INT64_MAX, 0}}), "");
  const Tensor x = zeros({2, 4, 5, 5}), w = zeros({4, 4, 3, 3});
  EXPECT_EQ(error_of([&] {
              kernel::conv2d(zeros({2, 4, 4, 3}), x, w, {}, {});
            }),
            "[kernel.conv2d] shape of the result of the convolution; expected [2, 4, 3, 3], got "
            "[2, 4, 4, 3]");
  EXPECT_NE(error_of([&] { kernel::conv2d(zeros({2, 4, 3, 3}), x, w, zeros({3}), {}); }), "");
  EXPECT_NE(error_of([&] {
              kernel::conv2d(zeros({2, 4, 3, 3}), zeros({2, 4, 5, 5}, DType::i32), w, {}, {});
            }),
            "");
}

}  // namespace
}  // namespace lockstep::test

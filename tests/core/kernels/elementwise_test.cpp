#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

#include <cstring>

#include "tests/support/kernel_test.h"
#include "tests/support/precision.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

class Elementwise : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Elementwise);

template <class F>
std::vector<double> map(const Tensor& x, F f) {
  std::vector<double> y = doubles(x);
  for (double& v : y) v = f(v);
  return y;
}

TEST_P(Elementwise, FillWritesEveryElementAndNoOther) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8})
    for (int64_t n : odd_sizes()) {
      Tensor whole = full({n + 2}, 7, dtype), x = whole.slice(1, n + 1);
      kernel::fill(x, 3);
      for (int64_t i = 0; i < n + 2; ++i)
        ASSERT_EQ(whole.slice(i, i + 1).item(), i == 0 || i == n + 1 ? 7 : 3)
            << name_of(dtype) << " " << n;
      if (n > 1000) break;
    }
}

TEST_P(Elementwise, CopyAndScaleAndAddScaled) {
  for (Placed placed : {Placed::aligned, Placed::unaligned})
    for (int64_t n : odd_sizes()) {
      const Tensor x = random_tensor({n}, 1, 1, placed);
      Tensor y = random_tensor({n}, 2, 1, placed), z = empty_like(x);
      kernel::copy(z, x);
      EXPECT_EQ(values(z), values(x));
      kernel::scale(z, x, -0.3f);
      expect_close(z, map(x, [](double v) { return v * -0.3f; }), 1e-7, 0);
      // One rounding of the product, one of the sum: on every instruction set the same bits.
      std::vector<float> expected = values(y);
      const std::vector<float> from = values(x);
      for (int64_t i = 0; i < n; ++i) {
        volatile float product = from[i] * 0.7f;
        expected[i] = expected[i] + product;
      }
      kernel::add_scaled(y, x, 0.7f);
      EXPECT_EQ(values(y), expected);
    }
}

TEST_P(Elementwise, UnaryFunctionsAndSlopes) {
  using kernel::Unary;
  struct Case {
    Unary op;
    double (*f)(double);
    double (*slope)(double);
    double sd, relative;
  };
  const Case cases[] = {
      {Unary::exp, [](double v) { return std::exp(v); }, [](double v) { return std::exp(v); }, 10,
       3e-7},
      {Unary::log, [](double v) { return std::log(v); }, [](double v) { return 1 / v; }, 0, 3e-7},
      {Unary::sqrt, [](double v) { return std::sqrt(v); },
       [](double v) { return 0.5 / std::sqrt(v); }, 0, 3e-7},
      {Unary::tanh, [](double v) { return std::tanh(v); },
       [](double v) { return 1 / (std::cosh(v) * std::cosh(v)); }, 1, 3e-7},
      {Unary::relu, [](double v) { return v > 0 ? v : 0.0; },
       [](double v) { return v > 0 ? 1.0 : 0.0; }, 1, 0},
      {Unary::square, [](double v) { return v * v; }, [](double v) { return 2 * v; }, 1, 2e-7},
      {Unary::reciprocal, [](double v) { return 1 / v; }, [](double v) { return -1 / (v * v); }, 1,
       3e-7},
  };
  for (const Case& c : cases)
    for (int64_t n : odd_sizes()) {
      Tensor x = random_tensor({n}, 3, c.sd == 0 ? 5 : c.sd, Placed::unaligned);
      if (c.sd == 0) kernel::unary(x, x, Unary::exp);  // positive, over many magnitudes
      const Tensor y = empty_like(x), dy = random_tensor({n}, 4), dx = empty_like(x);
      kernel::unary(y, x, c.op);
      expect_close(y, map(x, c.f), c.relative, 1e-37,
                   "value " + std::to_string(static_cast<int>(c.op)));
      kernel::unary_backward(dx, dy, x, y, c.op);
      std::vector<double> expected = map(x, c.slope);
      for (int64_t i = 0; i < n; ++i) expected[i] *= doubles(dy.slice(i, i + 1))[0];
      // 1 - tanh² loses digits where tanh is close to 1.
      expect_close(dx, expected, 1e-6, c.op == Unary::tanh ? 1e-6 : 1e-37, "slope");
      if (n > 1000) break;
    }
}

TEST_P(Elementwise, UnaryFunctionsAtTheEdges) {
  const std::vector<float> at = {0.0f,  -0.0f,   kInf,   -kInf,          kNan,   -1.0f,
                                 89.0f, 88.7f,   -87.5f, -103.f,         -110.f, 1e-42f,
                                 1e30f, -1e-30f, 20.0f,  1.17549435e-38f};
  const auto apply = [&](kernel::Unary op) {
    const Tensor x = from_values(at), y = empty_like(x);
    kernel::unary(y, x, op);
    return values(y);
  };
  const auto same = [&](const std::vector<float>& got, float (*f)(float), const char* what) {
    for (size_t i = 0; i < at.size(); ++i) {
      const float want = f(at[i]);
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(got[i])) << what << "(" << at[i] << ") gave " << got[i];
      else if (std::isinf(want) || want == 0)
        EXPECT_EQ(got[i], want) << what << "(" << at[i] << ")";
      else
        EXPECT_NEAR(got[i], want, 4e-7 * std::abs(want) + 1.5e-45) << what << "(" << at[i] << ")";
    }
  };
  same(
      apply(kernel::Unary::exp), [](float v) { return std::exp(v); }, "exp");
  same(
      apply(kernel::Unary::log), [](float v) { return std::log(v); }, "log");
  same(
      apply(kernel::Unary::tanh), [](float v) { return std::tanh(v); }, "tanh");
  same(
      apply(kernel::Unary::relu), [](float v) { return std::isnan(v) ? v
                                                       : v > 0       ? v
                                                                     : 0.0f; },
      "relu");
  EXPECT_TRUE(std::signbit(apply(kernel::Unary::tanh)[1])) << "tanh keeps the sign of zero";
}

TEST_P(Elementwise, GeluAndItsGradientToAFewUlp) {
  for (int64_t n : odd_sizes()) {
    const Tensor x = random_tensor({n}, 5, 3, Placed::unaligned), dy = random_tensor({n}, 6),
                 y = empty_like(x);
    const std::vector<double> d = doubles(dy);
    kernel::gelu(y, x, kernel::Gelu::exact);
    // Without fused multiply-add the squares in the tail lose a few digits of a number below 1e-3.
    expect_close(y, map(x, naive::gelu), 6e-7, 1e-9, "exact");
    kernel::gelu(y, x, kernel::Gelu::tanh);
    expect_close(y, map(x, naive::gelu_tanh), 2e-6, 1e-9, "tanh");
    std::vector<double> slopes = map(x, naive::gelu_slope);
    for (int64_t i = 0; i < n; ++i) slopes[i] *= d[i];
    kernel::gelu_backward(y, dy, x, kernel::Gelu::exact);
    expect_close(y, slopes, 1e-6, 1e-6, "exact slope");
    slopes = map(x, naive::gelu_tanh_slope);
    for (int64_t i = 0; i < n; ++i) slopes[i] *= d[i];
    kernel::gelu_backward(y, dy, x, kernel::Gelu::tanh);
    expect_close(y, slopes, 2e-6, 2e-6, "tanh slope");
  }
}

TEST_P(Elementwise, GeluOfExtremeNumbers) {
  const Tensor x = from_values<float>({-1e30f, -30, 0, 30, 1e30f, kNan}), y = empty_like(x),
               one = full({6}, 1);
  for (kernel::Gelu form : {kernel::Gelu::exact, kernel::Gelu::tanh}) {
    kernel::gelu(y, x, form);
    for (int i : {0, 1, 2}) EXPECT_EQ(values(y)[i], 0);
    EXPECT_EQ(values(y)[3], 30);
    EXPECT_EQ(values(y)[4], 1e30f);
    EXPECT_TRUE(std::isnan(values(y)[5]));
    kernel::gelu_backward(y, one, x, form);
    const std::vector<float> expected = {0, 0, 0.5, 1, 1};
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(values(y)[i], expected[i], 1e-6);
    EXPECT_TRUE(std::isnan(values(y)[5]));
  }
}

TEST_P(Elementwise, BiasGeluIsGeluOfTheSum) {
  for (kernel::Gelu form : {kernel::Gelu::exact, kernel::Gelu::tanh})
    for (int64_t rows : {0, 1, 5, 300})
      for (int64_t columns : {1, 7, 16, 33, 384}) {
        const Tensor x = random_tensor({rows, columns}, 7), bias = random_tensor({columns}, 8),
                     dy = random_tensor({rows, columns}, 9), out = empty_like(x),
                     sum = empty_like(x), expected = empty_like(x), dx = empty_like(x),
                     dbias = full({columns}, kNan);
        kernel::bias_gelu(out, x, bias, form);
        kernel::binary(sum, x, bias, kernel::Binary::add);
        kernel::gelu(expected, sum, form);
        EXPECT_EQ(values(out), values(expected));
        kernel::bias_gelu_backward(dx, dbias, dy, x, bias, form);
        kernel::gelu_backward(expected, dy, sum, form);
        EXPECT_EQ(values(dx), values(expected));
        expect_close(dbias, naive::column_sum(doubles(expected), rows, columns), 1e-5, 1e-5);
        kernel::bias_gelu_backward(dx, Tensor(), dy, x, bias, form);
        EXPECT_EQ(values(dx), values(expected)) << "dbias not wanted";
      }
}

TEST_P(Elementwise, BiasReluBackwardIsThatOfReluAndTheSumOfItsColumns) {
  for (int64_t rows : {0, 1, 5, 64, 300})
    for (int64_t columns : {1, 7, 16, 33, 384}) {
      const Tensor y = random_tensor({rows, columns}, 7), dy = random_tensor({rows, columns}, 8),
                   dx = empty_like(y), expected = empty_like(y), dbias = full({columns}, kNan),
                   sum = empty_like(dbias);
      kernel::bias_relu_backward(dx, dbias, dy, y);
      kernel::unary_backward(expected, dy, y, y, kernel::Unary::relu);
      kernel::column_sum(sum, expected);
      EXPECT_EQ(values(dx), values(expected));
      EXPECT_EQ(values(dbias), values(sum)) << rows << " " << columns;
      kernel::fill(dx, kNan);
      kernel::bias_relu_backward(dx, Tensor(), dy, y);
      EXPECT_EQ(values(dx), values(expected)) << "dbias not wanted";
    }
}

TEST_P(Elementwise, BiasReluBackwardOfNarrowTypesHasTheBitsOfF32) {
  for (DType dtype : {DType::f16, DType::bf16})
    for (DType of_dy : {dtype, DType::f32})
      for (int64_t rows : {1, 7, 67})
        for (int64_t columns : {1, 16, 33, 300}) {
          const Tensor y = in_dtype(random_tensor({rows, columns}, 7), dtype),
                       dy = in_dtype(random_tensor({rows, columns}, 8), of_dy), dx = empty_like(dy),
                       dbias = full({columns}, kNan), wide = Tensor::empty({rows, columns}),
                       sum = empty_like(dbias);
          kernel::bias_relu_backward(wide, sum, in_dtype(dy, DType::f32), in_dtype(y, DType::f32));
          kernel::bias_relu_backward(dx, dbias, dy, y);
          EXPECT_EQ(values(in_dtype(dx, DType::f32)), values(wide));
          EXPECT_EQ(values(dbias), values(sum)) << rows << " " << columns;
          kernel::bias_relu_backward(dy, dbias, dy, y);
          EXPECT_EQ(values(in_dtype(dy, DType::f32)), values(wide)) << "in place";
        }
}

TEST_P(Elementwise, AnOutputMayBeAnInput) {
  const Tensor x = random_tensor({1000}, 10);
  const auto in_place = [&](auto run) {
    Tensor apart = empty_like(x), same = empty_like(x);
    kernel::copy(same, x);
    run(apart, x);
    run(same, same);
    EXPECT_EQ(values(apart), values(same));
  };
  in_place([](const Tensor& o, const Tensor& i) { kernel::gelu(o, i, kernel::Gelu::exact); });
  in_place([](const Tensor& o, const Tensor& i) { kernel::scale(o, i, 3); });
  in_place(
      [](const Tensor& o, const Tensor& i) { kernel::binary(o, i, i, kernel::Binary::multiply); });
  in_place([](const Tensor& o, const Tensor& i) { kernel::unary(o, i, kernel::Unary::exp); });
}

TEST_P(Elementwise, AKernelBumpsTheVersionOfItsOutputOnly) {
  const Tensor x = random_tensor({10}, 11), y = empty_like(x);
  const uint64_t version_x = x.version(), version_y = y.version();
  kernel::scale(y, x, 2);
  EXPECT_EQ(x.version(), version_x);
  EXPECT_GT(y.version(), version_y);
}

TEST_P(Elementwise, WrongShapesAndTypesAreRefused) {
  const Tensor x = zeros({4});
  EXPECT_THROW(kernel::scale(zeros({5}), x, 1), UsageError);
  EXPECT_THROW(kernel::scale(zeros({4}, DType::i32), x, 1), UsageError);
  EXPECT_THROW(kernel::copy(zeros({4}, DType::i32), x), UsageError);
  EXPECT_THROW(kernel::gelu(Tensor(), x, kernel::Gelu::exact), UsageError);
}

}  // namespace
}  // namespace lockstep::test

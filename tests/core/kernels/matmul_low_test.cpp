// Products of f16 and bf16 matrices: exact products, f32 sums, one rounding.
#include <Eigen/Dense>
#include <thread>

#include "core/kernels/cpu/dnnl_product.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/matmul.h"
#include "tests/support/kernel_test.h"
#include "tests/support/precision.h"

namespace lockstep::test {
namespace {

using cpu::Bf16Products;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Way {
  cpu::Isa isa;
  Bf16Products products;
};
std::vector<Way> ways() {
  std::vector<Way> all;
  for (cpu::Isa set : cpu::available_isas()) all.push_back({set, Bf16Products::widened});
  if (cpu::has_native_bf16()) all.push_back({cpu::Isa::avx512, Bf16Products::native});
  return all;
}

// With one and two threads, by widening on every instruction set and, where the processor has them,
// by bf16 instructions.
class MatmulLow : public testing::TestWithParam<std::tuple<Way, int>> {
 public:
  MatmulLow() {
    cpu::use_isa(std::get<0>(GetParam()).isa);
    cpu::use_bf16_products(std::get<0>(GetParam()).products);
  }
  ~MatmulLow() override {
    cpu::use_bf16_products(before_);
    cpu::use_isa(isa_before_);
  }

 private:
  cpu::Isa isa_before_ = cpu::isa();
  Bf16Products before_ = cpu::bf16_products();
  ThreadBudget budget_{std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Kernels, MatmulLow,
                         testing::Combine(testing::ValuesIn(ways()), testing::Values(1, 2)),
                         [](const auto& instance) {
                           const Way& way = std::get<0>(instance.param);
                           return std::string(way.products == Bf16Products::native
                                                  ? "native"
                                                  : cpu::name_of(way.isa)) +
                                  "_" + std::to_string(std::get<1>(instance.param)) + "_threads";
                         });

std::vector<double> numbers(const Tensor& x) { return doubles(in_dtype(x, DType::f32)); }
// Rounded to a dtype and back, one at a time.
double rounded(DType dtype, double x) {
  const float f = static_cast<float>(x);
  return dtype == DType::f16 ? half(f) : dtype == DType::bf16 ? bfloat16(f) : f;
}

// Integers in [-4, 4]: products and sums of up to a million of them are exact in f32.
Tensor integers(const Shape& shape, uint32_t key, DType dtype) {
  const Tensor x = Tensor::empty(shape);
  const Random random(7, RandomStream::tests, key);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    p[i] = static_cast<float>(random.below(9, static_cast<uint64_t>(i))) - 4;
  return in_dtype(x, dtype);
}

Matrix matrix_of(const Tensor& x, bool transposed = false) {
  Matrix m(x.size(-2), x.size(-1));
  const std::vector<double> v = numbers(x);
  std::copy(v.begin(), v.end(), m.data());
  if (transposed) return m.transpose();
  return m;
}
Shape stored(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}
// a · b + bias + c, each element rounded to the dtype.
std::vector<double> rounded_sum(DType dtype, Matrix sum, const Tensor& bias, const Tensor& c) {
  if (bias.defined()) {
    const std::vector<double> row = numbers(bias);
    for (int64_t i = 0; i < sum.rows(); ++i)
      for (int64_t j = 0; j < sum.cols(); ++j) sum(i, j) += row[static_cast<size_t>(j)];
  }
  if (c.defined()) sum += matrix_of(c);
  std::vector<double> list(sum.data(), sum.data() + sum.size());
  for (double& x : list) x = rounded(dtype, x);
  return list;
}

TEST_P(MatmulLow, ExactSumsAreRoundedOnceWhateverTheDTypes) {
  for (DType in_a : kFloating)
    for (DType in_b : kFloating)
      for (DType out : kFloating)
        for (DType in_bias : kFloating)
          for (int storage = 0; storage < 8; ++storage) {
            const bool trans_a = storage & 1, trans_b = storage & 2, accumulate = storage & 4;
            const int64_t m = 5, n = 19, k = 150;  // sums beyond 256, which bf16 must round
            const Tensor a = integers(stored(m, k, trans_a), 1, in_a),
                         b = integers(stored(k, n, trans_b), 2, in_b),
                         bias = integers({n}, 3, in_bias),
                         c = accumulate ? integers({m, n}, 4, out) : full({m, n}, NAN, out);
            const Matrix product = matrix_of(a, trans_a) * matrix_of(b, trans_b);
            const auto expected = rounded_sum(out, product, bias, accumulate ? c : Tensor());
            kernel::matmul(
                c, a, b,
                {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate, .bias = bias});
            ASSERT_EQ(numbers(c), expected)
                << name_of(in_a) << name_of(in_b) << name_of(out) << name_of(in_bias) << storage;
          }
}

// Every chunk and piece of large ones, both ways of cutting.
TEST_P(MatmulLow, LargeExactSums) {
  const int64_t sizes[][3] = {{900, 33, 700}, {65, 830, 500}, {130, 130, 3000}, {1, 2000, 300},
                              {2000, 1, 300}, {33, 33, 5000}, {300, 300, 1},    {1, 1, 100000}};
  for (const auto& [m, n, k] : sizes)
    for (DType low : {DType::f16, DType::bf16})
      for (int storage = 0; storage < 8; ++storage) {
        const bool trans_a = storage & 1, trans_b = storage & 2, accumulate = storage & 4;
        const DType out = storage == 1 || storage == 5 ? DType::f32 : low;
        const Tensor a = integers(stored(m, k, trans_a), 1, low),
                     b = integers(stored(k, n, trans_b), 2, low),
                     c = accumulate ? integers({m, n}, 3, out) : full({m, n}, NAN, out);
        const Matrix product = matrix_of(a, trans_a) * matrix_of(b, trans_b);
        const auto expected = rounded_sum(out, product, {}, accumulate ? c : Tensor());
        kernel::matmul(c, a, b, {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate});
        ASSERT_TRUE(numbers(c) == expected)
            << m << "x" << n << "x" << k << " " << name_of(low) << " " << storage;
      }
}

TEST_P(MatmulLow, OddSizesAgreeWithTheTwinInDouble) {
  for (int64_t m : {1, 2, 7, 17, 33})
    for (int64_t n : {1, 3, 8, 31})
      for (int64_t k : {1, 2, 5, 16, 127})
        for (DType low : {DType::f16, DType::bf16}) {
          const Tensor a = in_dtype(random_tensor({m, k}, 1), low),
                       b = in_dtype(random_tensor({k, n}, 2), low), c = full({m, n}, NAN),
                       d = full({m, n}, NAN, low);
          kernel::matmul(c, a, b, {});
          kernel::matmul(d, a, b, {});
          const Matrix product = matrix_of(a) * matrix_of(b);
          const std::vector<double> expected(product.data(), product.data() + product.size());
          expect_close(c, expected, 1e-5, 1e-5);
          // Half a unit in the last place, and what the sum in f32 was off by.
          expect_close(in_dtype(d, DType::f32), expected, low == DType::f16 ? 0x1p-11 : 0x1p-8,
                       1e-5);
        }
}

// Packed before the multiplications or between them, operands are the same numbers.
TEST_P(MatmulLow, GradientsOfWeightsHaveTheBitsOfF32Operands) {
  cpu::use_bf16_products(Bf16Products::widened);  // the processor's own add in another order
  const struct {
    int64_t m, n, k;
  } sizes[] = {{12, 32, 9},   {13, 32, 1},    {14, 40, 17},   {25, 64, 600},
               {27, 47, 513}, {40, 130, 600}, {97, 33, 1100}, {130, 700, 520}};
  for (const auto& [m, n, k] : sizes)
    for (DType dtype : {DType::f16, DType::bf16})
      for (DType out : {DType::f32, dtype})
        for (bool accumulate : {false, true}) {
          const Tensor a = in_dtype(random_tensor({k, m}, 1), dtype),
                       b = in_dtype(random_tensor({k, n}, 2), dtype),
                       before = in_dtype(random_tensor({m, n}, 3), out);
          const kernel::MatmulOptions options{.trans_a = true, .accumulate = accumulate};
          const Tensor c = Tensor::empty({m, n}, out), expected = Tensor::empty({m, n}, out);
          kernel::copy(c, before), kernel::copy(expected, before);
          kernel::matmul(c, a, b, options);
          kernel::matmul(expected, in_dtype(a, DType::f32), in_dtype(b, DType::f32), options);
          EXPECT_EQ(numbers(c), numbers(expected)) << m << " " << n << " " << k;
        }
}

TEST_P(MatmulLow, Batches) {
  for (int64_t batch : {0, 1, 3, 50})
    for (DType low : {DType::f16, DType::bf16})
      for (int storage = 0; storage < 8; ++storage) {
        const bool trans_a = storage & 1, trans_b = storage & 2, accumulate = storage & 4;
        const int64_t m = 70, n = 65, k = 90;
        const Tensor a = integers(trans_a ? Shape{batch, k, m} : Shape{batch, m, k}, 1, low),
                     b = integers(trans_b ? Shape{batch, n, k} : Shape{batch, k, n}, 2, low),
                     bias = integers({n}, 3, DType::f32), c = integers({batch, m, n}, 4, low);
        std::vector<std::vector<double>> expected;
        for (int64_t i = 0; i < batch; ++i) {
          const auto member = [i](const Tensor& x) {
            return x.slice(i, i + 1).reshape({x.size(1), x.size(2)});
          };
          expected.push_back(
              rounded_sum(low, matrix_of(member(a), trans_a) * matrix_of(member(b), trans_b), bias,
                          accumulate ? member(c) : Tensor()));
        }
        kernel::matmul(
            c, a, b,
            {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate, .bias = bias});
        for (int64_t i = 0; i < batch; ++i)
          ASSERT_EQ(numbers(c.slice(i, i + 1)), expected[i]) << batch << storage;
      }
}

// A matrix whose rows lie further apart than they are long; all else is NaN.
kernel::MatrixIn padded(const Tensor& x, int64_t extra, int64_t offset) {
  const int64_t rows = x.size(0), columns = x.size(1), ld = columns + extra;
  const Tensor wide = full({offset + rows * ld + 1}, NAN);
  const std::vector<double> v = numbers(x);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      wide.mutable_data<float>()[offset + i * ld + j] = static_cast<float>(v[i * columns + j]);
  return {in_dtype(wide, x.dtype()), offset, rows, columns, ld};
}

TEST_P(MatmulLow, LeadingDimensionsLeavePaddingAlone) {
  for (int64_t m : {1, 7, 33})
    for (int64_t n : {1, 8, 33})
      for (int64_t k : {0, 1, 15, 64})
        for (DType low : {DType::f16, DType::bf16})
          for (int storage = 0; storage < 8; ++storage) {
            const bool trans_a = storage & 1, trans_b = storage & 2, accumulate = storage & 4;
            const Tensor a = integers(stored(m, k, trans_a), 5, low),
                         b = integers(stored(k, n, trans_b), 6, low), c = integers({m, n}, 7, low);
            const kernel::MatrixIn out = padded(c, 3, 5);
            kernel::matmul_strided(
                out.buffer, out, padded(a, 2, 1), padded(b, 4, 0),
                {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate});
            const auto expected = rounded_sum(low, matrix_of(a, trans_a) * matrix_of(b, trans_b),
                                              {}, accumulate ? c : Tensor());
            const std::vector<double> whole = numbers(out.buffer);
            for (int64_t at = 0; at < static_cast<int64_t>(whole.size()); ++at) {
              const int64_t i = (at - 5) / out.ld, j = (at - 5) % out.ld;
              if (at >= 5 && i < m && j < n)
                ASSERT_EQ(whole[at], expected[i * n + j]) << m << n << k << storage;
              else
                ASSERT_TRUE(std::isnan(whole[at])) << "padding was written";
            }
          }
}

TEST_P(MatmulLow, ReluIsThatOfTheFinishedSumAndKeepsNan) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor a = in_dtype(random_tensor({21, 40}, 1), DType::bf16),
                 b = in_dtype(random_tensor({40, 35}, 2), DType::bf16),
                 bias = random_tensor({35}, 3), plain = Tensor::empty({21, 35}, dtype),
                 fused = empty_like(plain);
    bias.mutable_data<float>()[4] = NAN;
    kernel::matmul(plain, a, b, {.bias = bias});
    kernel::unary(plain, plain, kernel::Unary::relu);
    kernel::matmul(fused, a, b, {.bias = bias, .relu = true});
    const std::vector<float> got = floats(fused), expected = floats(plain);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && i % 35 == 4)) << i;
  }
}

TEST_P(MatmulLow, NarrowProductsAreRoundedLikeOthers) {
  for (const DType in : kFloating)
    for (const DType out : kFloating)
      for (const int64_t n : {1, 7}) {
        const Tensor a = in_dtype(random_tensor({300, 40}, 1), in),
                     b = in_dtype(random_tensor({40, n}, 2), in), bias = random_tensor({n}, 3),
                     f32 = Tensor::empty({300, n}), narrow = Tensor::empty({300, n}, out);
        kernel::matmul(f32, a, b, {.bias = bias});
        kernel::matmul(narrow, a, b, {.bias = bias});
        if (in == DType::bf16 && out == DType::f16) continue;  // may be made in another order
        EXPECT_EQ(floats(narrow), floats(in_dtype(f32, out)));
      }
}

TEST_P(MatmulLow, NothingToAddUp) {
  for (DType low : {DType::f16, DType::bf16}) {
    const Tensor a = zeros({2, 0}, low), b = zeros({0, 3}, low), c = full({2, 3}, NAN, low),
                 bias = in_dtype(from_values<float>({1, 2, 3}), DType::bf16);
    kernel::matmul(c, a, b, {});
    EXPECT_EQ(numbers(c), std::vector<double>(6, 0.0));
    kernel::matmul(c, a, b, {.bias = bias});
    EXPECT_EQ(numbers(c), (std::vector<double>{1, 2, 3, 1, 2, 3}));
    kernel::matmul(c, a, b, {.accumulate = true});
    EXPECT_EQ(numbers(c), (std::vector<double>{1, 2, 3, 1, 2, 3}));
  }
}

TEST_P(MatmulLow, LongSumsAreNotMadeInTheNarrowType) {
  // In bf16 a sum of ones stops at 256, in f16 at 2048.
  for (DType low : {DType::f16, DType::bf16}) {
    const Tensor ones = full({1, 8192}, 1, low), c = zeros({1, 1}, low);
    kernel::matmul(c, ones, ones, {.trans_b = true});
    EXPECT_EQ(numbers(c), std::vector<double>{8192});
  }
}

TEST_P(MatmulLow, WhatIsBeyondHalfBecomesInfinity) {
  const Tensor a = full({1, 2}, 256, DType::f16), b = full({2, 1}, 128, DType::f16),
               c = zeros({1, 1}, DType::f16);
  kernel::matmul(c, a, b, {});
  EXPECT_EQ(numbers(c), std::vector<double>{INFINITY});
  const Tensor sum = zeros({1, 1});
  kernel::matmul(sum, a, b, {});
  EXPECT_EQ(numbers(sum), std::vector<double>{65536}) << "the sum itself is f32";
}

TEST(MatmulLowWays, WidenedKeepsSubnormals) {
  const Bf16Products before = cpu::bf16_products();
  cpu::use_bf16_products(Bf16Products::widened);
  const double least = 0x1p-133;  // of bf16
  const Tensor a = full({1, 3}, least, DType::bf16), b = full({3, 1}, 256, DType::bf16),
               c = zeros({1, 1}, DType::bf16);
  kernel::matmul(c, a, b, {});
  EXPECT_EQ(numbers(c), std::vector<double>{768 * least});
  const Tensor h = full({1, 3}, 0x1p-24, DType::f16), d = zeros({1, 1}, DType::f16);
  kernel::matmul(d, h, full({3, 1}, 1, DType::f16), {});
  EXPECT_EQ(numbers(d), std::vector<double>{3 * 0x1p-24});
  cpu::use_bf16_products(before);
}

TEST(MatmulLowWays, NativeAgreesWithWidenedWithinTheOrderOfSums) {
  if (!cpu::has_native_bf16()) GTEST_SKIP() << "this processor does not multiply bf16";
  const Bf16Products before = cpu::bf16_products();
  const Tensor a = in_dtype(random_tensor({130, 700}, 1), DType::bf16),
               b = in_dtype(random_tensor({700, 70}, 2), DType::bf16), c = zeros({130, 70}),
               d = zeros({130, 70});
  cpu::use_bf16_products(Bf16Products::widened);
  kernel::matmul(c, a, b, {});
  cpu::use_bf16_products(Bf16Products::native);
  kernel::matmul(d, a, b, {});
  cpu::use_bf16_products(before);
  expect_close(d, doubles(c), 1e-5, 1e-4);
}

TEST(MatmulLowWays, OtherInstructionSetsWiden) {
  const cpu::Isa before = cpu::isa();
  for (cpu::Isa set : cpu::available_isas()) {
    cpu::use_isa(set);
    if (set == cpu::Isa::avx512) continue;
    EXPECT_EQ(cpu::bf16_products(), Bf16Products::widened);
  }
  cpu::use_isa(before);
}

TEST(MatmulLowThreads, ManyMayMultiplyAtOnceAndAgree) {
  for (DType low : {DType::f16, DType::bf16}) {
    const Tensor a = in_dtype(random_tensor({300, 96}, 16), low),
                 b = in_dtype(random_tensor({96, 80}, 17), low);
    const auto product = [&] {
      ThreadBudget budget(1);
      const Tensor c = zeros({300, 80}, low);
      kernel::matmul(c, a, b, {.bias = full({80}, 0.5, low)});
      return numbers(c);
    };
    const std::vector<double> expected = product();
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) wrong[t] += product() != expected;
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, std::vector<int>(4, 0));
  }
}

TEST(MatmulLowShapes, IntegersAreRefused) {
  EXPECT_EQ(error_of<UsageError>([] {
              kernel::matmul(zeros({2, 2}), zeros({2, 2}, DType::i32), zeros({2, 2}), {});
            }),
            "[kernel.matmul] dtype of an operand; expected f32, f16 or bf16, got i32");
  EXPECT_THROW(
      kernel::matmul(zeros({2, 2}), zeros({2, 2}), zeros({2, 2}), {.bias = zeros({2}, DType::i64)}),
      UsageError);
}

}  // namespace
}  // namespace lockstep::test

#include "core/kernels/attention.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/norm.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"
#include "tests/support/kernel_test.h"
#include "tests/support/precision.h"

// What low precision must not break: long sums, extreme numbers. That every kernel computes in f32
// and rounds once is tested in floats_test.cpp.
namespace lockstep::test {
namespace {

class LowPrecision : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(LowPrecision);
class KnownFaultsInLowPrecision : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(KnownFaultsInLowPrecision);

constexpr int64_t kLong[] = {4096, 65536, 1000000};

Tensor low(const std::vector<float>& v, const Shape& shape, DType dtype) {
  return in_dtype(from_values(v, shape), dtype);
}

// Positive numbers of about 1/32: a sum that is kept in f16 stops at 64, one in bf16 at 8.
Tensor addends(const Shape& shape, DType dtype) {
  static const Tensor all = [] {
    const Tensor x = Tensor::empty({2 * kLong[2]});
    const Random random(3, RandomStream::tests);
    float* p = x.mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i)
      p[i] = (1 + random.uniform(static_cast<uint64_t>(i))) / 48;
    return x;
  }();
  return in_dtype(all.slice(0, shape.numel()).reshape(shape), dtype);
}
// Σ_n f(x[n, column]) for x[N, columns].
template <class F>
double sum_of(const Tensor& x, int64_t column, F f) {
  const std::vector<float> v = floats(x);
  double sum = 0;
  for (int64_t i = column; i < x.numel(); i += x.shape().last()) sum += f(v[i]);
  return sum;
}
double sum_of(const Tensor& x, int64_t column) {
  return sum_of(x, column, [](double v) { return v; });
}

// Within the rounding of f32 sums and one rounding to the type.
void expect_sum(const Tensor& got, double expected, const char* what, double f32_error = 1e-5) {
  const double rounding = got.dtype() == DType::f16    ? 0x1p-11
                          : got.dtype() == DType::bf16 ? 0x1p-9
                                                       : 0;
  for (float v : floats(got))
    EXPECT_NEAR(v, expected, (rounding + f32_error) * std::abs(expected))
        << what << " into " << name_of(got.dtype());
}

TEST_P(LowPrecision, LongSumsDoNotStall) {
  for (DType dtype : kNarrow)
    for (int64_t n : kLong) {
      const Tensor x = addends({n, 1}, dtype);
      const double expected = sum_of(x, 0), squares = sum_of(x, 0, [](double v) { return v * v; });
      EXPECT_NEAR(kernel::sum_of_squares(x), squares, 1e-12 * squares);
      EXPECT_EQ(kernel::sum_of_squares(x), kernel::sum_of_squares(in_dtype(x, DType::f32)));
      for (DType result : {dtype, DType::f32}) {
        const Tensor out = full({1}, NAN, result);
        kernel::sum(out, x);
        expect_sum(out, expected, "sum");
        kernel::column_sum(out, x);
        expect_sum(out, expected, "column_sum");
        kernel::sum_to(out, x.reshape({n, 1, 1}));
        expect_sum(out, expected, "sum_to");
      }
    }
}

TEST_P(LowPrecision, LongGradientsOfBiasesDoNotStall) {
  for (DType dtype : kNarrow)
    for (int64_t n : kLong) {
      const Tensor dy = addends({n, 1}, dtype), x = full({n, 1}, 30, dtype),
                   zero = full({1}, 0, dtype), dx = empty_like(x);
      const double expected = sum_of(dy, 0);  // the slope at 30 is 1
      for (DType result : {dtype, DType::f32}) {
        const Tensor dbias = full({1}, NAN, result);
        kernel::bias_gelu_backward(dx, dbias, dy, x, zero, kernel::Gelu::tanh);
        expect_sum(dbias, expected, "dbias");
      }
    }
}

TEST_P(LowPrecision, LongGradientsOfRowsDoNotStall) {
  for (DType dtype : kNarrow)
    for (int64_t n : kLong) {
      const Tensor dy = addends({n, 1}, dtype), ids = full({n}, 1, DType::i32);
      const double expected = sum_of(dy, 0);
      for (DType result : {dtype, DType::f32}) {
        const Tensor dtable = full({2, 1}, 0, result);
        kernel::embedding_backward(dtable, dy, ids, -1);
        EXPECT_EQ(dtable.slice(0, 1).item(), 0);
        expect_sum(dtable.slice(1, 2), expected, "dtable", 2e-4);  // plain f32 additions, in order
      }
    }
}

TEST_P(LowPrecision, LongRowsHaveTheirMeanAndVariance) {
  for (DType dtype : kNarrow)
    for (int64_t n : kLong) {
      const Tensor x = addends({1, n}, dtype), gamma = full({n}, 1, dtype), out = empty_like(x),
                   mean = zeros({1}), rstd = zeros({1});
      kernel::layer_norm(out, mean, rstd, x, gamma, Tensor(), 0);
      const Tensor column = x.reshape({n, 1});
      const double middle = sum_of(column, 0) / static_cast<double>(n);
      const double variance =
          sum_of(column, 0, [&](double v) { return (v - middle) * (v - middle); }) /
          static_cast<double>(n);
      EXPECT_NEAR(mean.item(), middle, 1e-5 * middle);
      EXPECT_NEAR(rstd.item() * std::sqrt(variance), 1, 3e-4);  // lanes of a quarter million in f32
    }
}

TEST_P(LowPrecision, LongGradientsOfNormsDoNotStall) {
  for (DType dtype : kNarrow)
    for (int64_t n : kLong) {
      // Rows (-1, 1) with mean 0 and rstd 1: x̂ is x.
      const Tensor x = Tensor::empty({n, 2}, dtype), dx = empty_like(x), mean = zeros({n}),
                   rstd = full({n}, 1), dy = addends({n, 2}, dtype);
      kernel::binary(x, full({n, 2}, 1), from_values<float>({-1, 1}), kernel::Binary::multiply);
      for (DType result : {dtype, DType::f32}) {
        const Tensor dgamma = full({2}, NAN, result), dbeta = full({2}, NAN, result);
        kernel::layer_norm_backward(dx, dgamma, dbeta, dy, Tensor(), x, mean, rstd,
                                    full({2}, 1, dtype));
        for (int64_t c : {0, 1}) {
          expect_sum(dbeta.slice(c, c + 1), sum_of(dy, c), "dbeta");
          expect_sum(dgamma.slice(c, c + 1), (c == 0 ? -1 : 1) * sum_of(dy, c), "dgamma");
        }
      }
    }
}

TEST_P(LowPrecision, ScansAgreeWithThoseOfTheWidenedNumbers) {
  for (DType dtype : kNarrow)
    for (int64_t n : {1, 17, 1024, 1025, 300000}) {
      const Tensor x = in_dtype(random_tensor({n}, 4), dtype), at = full({1}, -1, DType::i64),
                   wide_at = full({1}, -1, DType::i64);
      kernel::argmax(at, x);
      kernel::argmax(wide_at, in_dtype(x, DType::f32));
      EXPECT_EQ(at.item(), wide_at.item());
      EXPECT_EQ(kernel::first_non_finite(x), -1);
      kernel::fill(x, dtype == DType::f16 ? 65504 : 3.3895314e38);
      EXPECT_EQ(kernel::first_non_finite(x), -1) << "the largest finite number is finite";
      for (int64_t i : {n - 1, n / 2, int64_t{0}})
        for (double bad : {NAN, INFINITY, -INFINITY}) {
          kernel::fill(x.slice(i, i + 1), bad);
          EXPECT_EQ(kernel::first_non_finite(x), i);
        }
    }
}

TEST_P(LowPrecision, AnOutputMayBeAnInput) {
  for (DType dtype : kNarrow) {
    const Tensor x = in_dtype(random_tensor({3, 1500}, 10), dtype);
    const auto in_place = [&](auto run) {
      const Tensor apart = full(x.shape(), NAN, dtype), same = in_dtype(x, dtype);
      run(apart, x);
      run(same, same);
      EXPECT_EQ(floats(apart), floats(same));
    };
    in_place([](const Tensor& o, const Tensor& i) { kernel::gelu(o, i, kernel::Gelu::exact); });
    in_place([](const Tensor& o, const Tensor& i) { kernel::scale(o, i, 3); });
    in_place([](const Tensor& o, const Tensor& i) {
      kernel::binary(o, i, i, kernel::Binary::multiply);
    });
    in_place([](const Tensor& o, const Tensor& i) { kernel::softmax(o, i); });
    in_place([](const Tensor& o, const Tensor& i) {
      kernel::layer_norm(o, zeros({3}), zeros({3}), i, full({1500}, 1), Tensor(), 1e-5f);
    });
  }
}

TEST_P(LowPrecision, WhatOverflowsIsSeen) {
  // A loss scale of 2^16 is too much for the gradients 1 and -1 of logits in f16.
  const Tensor logits = low({10, 0, -100}, {1, 3}, DType::f16), lse = full({1}, 10),
               targets = from_values<int64_t>({2}), dlogits = empty_like(logits);
  kernel::softmax_cross_entropy_backward(dlogits, full({1}, 32768), logits, lse, targets, -1);
  EXPECT_EQ(floats(dlogits)[2], -32768);
  EXPECT_EQ(kernel::first_non_finite(dlogits), -1);
  kernel::softmax_cross_entropy_backward(dlogits, full({1}, 65536), logits, lse, targets, -1);
  EXPECT_EQ(kernel::first_non_finite(dlogits), 0);
  EXPECT_EQ(floats(dlogits)[2], -INFINITY);
  const Tensor sum = full({1}, 0, DType::f16);
  kernel::sum(sum, full({4}, 30000, DType::f16));
  EXPECT_EQ(sum.item(), INFINITY);
}

struct Entropy {
  std::vector<float> losses, dlogits;
};
Entropy cross_entropy(const Tensor& logits, const std::vector<int64_t>& targets) {
  const int64_t rows = logits.size(0);
  const Tensor losses = full({rows}, NAN), lse = full({rows}, NAN),
               dlogits = full(logits.shape(), NAN, logits.dtype()), at = from_values(targets);
  kernel::softmax_cross_entropy(losses, lse, logits, at, -1);
  kernel::softmax_cross_entropy_backward(dlogits, full({1}, 1), logits, lse, at, -1);
  return {values(losses), floats(dlogits)};
}

TEST_P(KnownFaultsInLowPrecision, O27_CrossEntropyExtremes) {
  for (DType dtype : kNarrow) {
    const Tensor x = low({10, 0, -100, 50, 0, -120}, {2, 3}, dtype);
    const Entropy e = cross_entropy(x, {2, 2});
    EXPECT_FLOAT_EQ(e.losses[0], 110.0000454f);
    EXPECT_EQ(e.losses[1], 170);
    EXPECT_EQ(e.dlogits[2], -1);
    EXPECT_EQ(e.dlogits[5], -1);
    for (float v : e.dlogits) EXPECT_TRUE(std::isfinite(v));

    // All equal to the largest of the type, or to 1e30: log C, and 1/C in the gradient.
    const Tensor flat = full({1, 5}, dtype == DType::f16 ? 65504 : 1e30, dtype);
    const Entropy f = cross_entropy(flat, {3});
    EXPECT_FLOAT_EQ(f.losses[0], std::log(5.0f));
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(f.dlogits[i], i == 3 ? -0.8 : 0.2, 0x1p-9);

    const Tensor wide = low({60000, -60000}, {1, 2}, dtype);
    const Entropy w = cross_entropy(wide, {1});
    EXPECT_EQ(w.losses[0], 2 * floats(wide)[0]);
    EXPECT_EQ(w.losses[0], dtype == DType::f16 ? 120000 : 119808);
    EXPECT_EQ(w.dlogits, (std::vector<float>{1, -1}));

    const Entropy none = cross_entropy(x, {-1, -1});
    EXPECT_EQ(none.losses, std::vector<float>(2, 0.0f));
    EXPECT_EQ(none.dlogits, std::vector<float>(6, 0.0f));
  }
}

TEST_P(KnownFaultsInLowPrecision, O27_BceExtremes) {
  for (DType dtype : kNarrow) {
    const Tensor x = low({1000, -50, 0, -1000, 60000, -60000}, {6}, dtype),
                 t = low({0, 1, 0.5, 0, 0, 1}, {6}, dtype), losses = full({6}, NAN),
                 dx = full({6}, NAN, dtype);
    kernel::bce_with_logits(losses, x, t);
    kernel::bce_with_logits_backward(dx, full({1}, 1), x, t);
    const double edge = floats(x)[4];
    expect_close(losses, {1000, 50, std::log(2.0), 0, edge, edge}, 1e-6, 0);
    EXPECT_EQ(floats(dx), (std::vector<float>{1, -1, 0, 0, 1, -1}));
  }
}

TEST_P(KnownFaultsInLowPrecision, O28_AConstantRowGivesZero) {
  for (DType dtype : kNarrow)
    for (int64_t width : {4, 100, 1000}) {
      const Tensor x = full({2, width}, 40000, dtype), out = full({2, width}, NAN, dtype),
                   mean = zeros({2}), rstd = zeros({2});
      kernel::layer_norm(out, mean, rstd, x, full({width}, 1, dtype), Tensor(), 1e-5f);
      EXPECT_EQ(floats(out), std::vector<float>(2 * width, 0.0f));
      EXPECT_EQ(values(mean)[0], floats(x)[0]);
    }
}

TEST_P(KnownFaultsInLowPrecision, O29_FullyMaskedRow) {
  for (DType dtype : kNarrow) {
    const Tensor qkv = low({0, 0, 1, 0, 0, 2, NAN, NAN, NAN}, {1, 3, 3}, dtype),
                 dout = low({1, 0, NAN}, {1, 3, 1}, dtype), out = full({1, 3, 1}, NAN, dtype),
                 lse = full({1, 1, 3}, NAN), dqkv = full({1, 3, 3}, NAN, dtype);
    const kernel::AttentionOptions options{
        .heads = 1, .causal = false, .lengths = from_values<int32_t>({2})};
    kernel::attention(out, lse, qkv, options);
    kernel::attention_backward(dqkv, dout, qkv, out, lse, options);
    EXPECT_EQ(floats(out), (std::vector<float>{1.5, 1.5, 0}));
    const std::vector<float> d = floats(dqkv);
    EXPECT_EQ(d[2], 0.5f);
    EXPECT_EQ(d[5], 0.5f);
    for (int i : {6, 7, 8}) EXPECT_EQ(d[i], 0.0f) << "nothing from the masked row";
  }
}

}  // namespace
}  // namespace lockstep::test

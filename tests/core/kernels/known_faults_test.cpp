#include "core/kernels/embedding.h"
#include "tests/support/kernel_calls.h"
#include "tests/support/kernel_test.h"

// The known faults that are a matter of kernels; O31 is in tensor_test.cpp and shape_test.cpp, O47
// in matmul_test.cpp.
namespace lockstep::test {
namespace {

class KnownFaults : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(KnownFaults);

TEST_P(KnownFaults, O24_LabelsOutOfRange) {
  const Tensor logits = random_tensor({3, 5}, 6);
  for (int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{-4}, int64_t{1} << 40, int64_t{1} << 31,
                      (int64_t{1} << 32) + 3}) {
    const Tensor targets = from_values<int64_t>({0, 4, bad}), losses = full({3}, 7),
                 lse = full({3}, 7), dlogits = full({3, 5}, 7);
    const std::string text = error_of<UsageError>(
        [&] { kernel::softmax_cross_entropy(losses, lse, logits, targets, kNoIgnore); });
    EXPECT_NE(text.find("row 2"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
    EXPECT_THROW(kernel::softmax_cross_entropy_backward(dlogits, full({1}, 1), logits, lse, targets,
                                                        kNoIgnore),
                 UsageError);
    for (const Tensor& untouched : {losses, lse, dlogits})
      for (float v : values(untouched)) EXPECT_EQ(v, 7) << "nothing may be written";
  }
  // Only the configured value is exempt.
  const Tensor losses = zeros({3}), lse = zeros({3});
  EXPECT_NO_THROW(
      kernel::softmax_cross_entropy(losses, lse, logits, from_values<int32_t>({-1, 0, 4}), -1));
  EXPECT_THROW(
      kernel::softmax_cross_entropy(losses, lse, logits, from_values<int32_t>({-1, 0, 4}), -100),
      UsageError);
  EXPECT_THROW(kernel::softmax_cross_entropy(losses, lse, logits, full({3}, 0), -1), UsageError)
      << "float targets";
}

TEST_P(KnownFaults, O24_IndicesOutOfRange) {
  const Tensor table = random_tensor({10, 3}, 5);
  for (int64_t bad : {int64_t{10}, int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 32) + 3}) {
    const Tensor ids = from_values<int64_t>({1, bad, 2}), out = full({3, 3}, 7),
                 dtable = full({10, 3}, 7);
    const std::string text = error_of<UsageError>([&] { kernel::embedding(out, table, ids); });
    EXPECT_NE(text.find("position 1"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
    EXPECT_NE(text.find("10 rows"), std::string::npos) << text;
    EXPECT_THROW(kernel::embedding_backward(dtable, full({3, 3}, 1), ids, -1), UsageError);
    EXPECT_EQ(values(out), std::vector<float>(9, 7.0f)) << "nothing may be written";
    EXPECT_EQ(values(dtable), std::vector<float>(30, 7.0f)) << "nothing may be written";
  }
  EXPECT_THROW(kernel::embedding(zeros({1, 3}), table, from_values<int32_t>({-5})), UsageError);
}

TEST_P(KnownFaults, O27_CrossEntropyExtremes) {
  const Tensor x = from_values<float>({10, 0, -100, 50, 0, -120}, {2, 3}),
               targets = from_values<int64_t>({2, 2});
  const Entropy e = cross_entropy(x, targets);
  EXPECT_FLOAT_EQ(values(e.losses)[0], 110.0000454f);
  EXPECT_EQ(values(e.losses)[1], 170);
  EXPECT_EQ(values(e.dlogits)[2], -1);
  EXPECT_EQ(values(e.dlogits)[5], -1);
  for (float v : values(e.dlogits)) EXPECT_TRUE(std::isfinite(v));

  // All equal to 1e30: log C, and 1/C in the gradient.
  const Entropy flat = cross_entropy(full({1, 5}, 1e30), from_values<int64_t>({3}));
  EXPECT_FLOAT_EQ(values(flat.losses)[0], std::log(5.0f));
  expect_close(flat.dlogits, {0.2, 0.2, 0.2, -0.8, 0.2}, 1e-6, 0);

  // The range of half precision.
  const Entropy wide =
      cross_entropy(from_values<float>({60000, -60000}, {1, 2}), from_values<int64_t>({1}));
  EXPECT_EQ(values(wide.losses)[0], 120000);
  EXPECT_EQ(values(wide.dlogits), (std::vector<float>{1, -1}));

  // All rows ignored: exactly 0 with zero gradient.
  const Entropy none = cross_entropy(x, from_values<int64_t>({-1, -1}), -1);
  EXPECT_EQ(values(none.losses), std::vector<float>(2, 0.0f));
  EXPECT_EQ(values(none.dlogits), std::vector<float>(6, 0.0f));
}

TEST_P(KnownFaults, O27_BceExtremes) {
  const Tensor x = from_values<float>({1000, -50, 0, -1000, 30}),
               t = from_values<float>({0, 1, 0.5, 0, 1}), losses = zeros({5}), dx = zeros({5});
  kernel::bce_with_logits(losses, x, t);
  kernel::bce_with_logits_backward(dx, full({1}, 1), x, t);
  expect_close(losses, {1000, 50, std::log(2.0), 0, std::log1p(std::exp(-30.0))}, 1e-6, 0);
  expect_close(dx, {1, -1, 0, 0, -1 / (1 + std::exp(30.0))}, 1e-6, 1e-7);
}

TEST_P(KnownFaults, O28_LayerNormWithALargeMean) {
  const Tensor x = from_values<float>({40000, 40001, 40002, 40003, 40000, 40000, 40000, 40000},
                                      {2, 4}),
               gamma = full({4}, 1);
  const Normed n = layer_norm(x, gamma, zeros({4}));
  expect_close(n.out.slice(0, 1), {-1.3416354, -0.4472118, 0.4472118, 1.3416354}, 0, 1e-4);
  EXPECT_EQ(values(n.out.slice(1, 2)), std::vector<float>(4, 0.0f))
      << "a constant row gives exactly 0";

  const Tensor dy = random_tensor({2, 4}, 15), dx = empty_like(x), dgamma = zeros({4}),
               dbeta = zeros({4});
  kernel::layer_norm_backward(dx, dgamma, dbeta, dy, Tensor(), x, n.mean, n.rstd, gamma);
  for (const Tensor& t : {dx, dgamma, dbeta})
    for (float v : values(t)) EXPECT_TRUE(std::isfinite(v));

  // Constant rows of every width and of numbers that are not exact.
  for (int64_t width : {3, 17, 100, 384, 1000})
    for (double level : {0.1, 40000.1, -1e6}) {
      const Normed flat = layer_norm(full({3, width}, level), full({width}, 1), Tensor());
      EXPECT_EQ(values(flat.out), std::vector<float>(3 * width, 0.0f)) << width << " of " << level;
    }
}

TEST_P(KnownFaults, O28_VarianceOfManyCloseNumbers) {
  const int64_t n = 32768;
  const Tensor x = random_tensor({1, n}, 16, 0.01);
  for (int64_t i = 0; i < n; ++i) x.mutable_data<float>()[i] += 100.0f;
  const Normed got = layer_norm(x, full({n}, 1), Tensor());
  const double rstd = values(got.rstd)[0], variance = 1 / (rstd * rstd) - 1e-5;
  EXPECT_NEAR(variance, 1e-4, 1e-6) << "E[x^2] - E[x]^2 would give 0";
  EXPECT_NEAR(values(got.mean)[0], 100, 1e-3);
}

TEST_P(KnownFaults, O29_FullyMaskedRow) {
  // One head of width 1. Lengths mask a tail, so the query that sees nothing comes third here: the
  // first two see both keys with equal scores, the third none.
  const Tensor qkv = from_values<float>({0, 0, 1, 0, 0, 2, 5, 5, 7}, {1, 3, 3});
  kernel::AttentionOptions options{
      .heads = 1, .causal = false, .lengths = from_values<int32_t>({2})};
  const Tensor dout =
      from_values<float>({1, 0, 1}, {1, 3, 1});  // rows 0 and 2, but 2 passes nothing on
  const AttentionPasses r = attention(qkv, dout, options);
  EXPECT_EQ(values(r.out), (std::vector<float>{1.5, 1.5, 0}));
  const std::vector<float> d = values(r.dqkv);
  for (float v : d) EXPECT_TRUE(std::isfinite(v));
  EXPECT_EQ(d[2], 0.5f);
  EXPECT_EQ(d[5], 0.5f);
  for (int i : {6, 7, 8}) EXPECT_EQ(d[i], 0.0f) << "nothing from the masked row";
}

}  // namespace
}  // namespace lockstep::test

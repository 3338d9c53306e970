// Gradients in dtypes of their own, autocast and its cached casts.
#include <gtest/gtest.h>

#include <thread>

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "core/allocator.h"
#include "core/parallel.h"
#include "tests/support/error_of.h"
#include "tests/support/precision.h"
#include "tests/support/tensors.h"

namespace lockstep::autograd {
namespace {

using test::error_of;
using test::floats;
using test::in_dtype;
using testing::Floats;
using testing::near;
using testing::randn;

Tensor leaf(const Tensor& values, DType dtype = DType::f32) {
  const Tensor x = in_dtype(values, dtype);
  require_grad(x);
  return x;
}

// ---------------------------------------------------------------- landing

// dx of `factor` at x.
void contribute(const Tensor& x, float factor) { backward(ops::sum(ops::scale(x, factor))); }

TEST(Precision, MicroBatchesAddInTheBuffersDtype) {
  const auto window = [](DType buffer, DType contribution, const Floats& micros) {
    const Tensor x = leaf(full({3}, 1));
    leaf_of(x).dtype = contribution;
    leaf_of(x).grad = zeros({3}, buffer);
    for (float micro : micros) contribute(x, micro);
    EXPECT_EQ(grad(x).dtype(), buffer);
    return floats(grad(x))[2];
  };
  const float tiny = 0x1p-9f;  // half of what bf16 can tell at 1, less where it adds up
  const Floats micros{1, tiny, tiny, tiny};
  EXPECT_EQ(window(DType::bf16, DType::bf16, micros), 1.0f) << "stalls";
  EXPECT_EQ(window(DType::f32, DType::bf16, micros), 1 + 3 * tiny);
  EXPECT_EQ(window(DType::f32, DType::bf16, {1 + tiny, tiny}), 1 + tiny) << "the first is rounded";
  EXPECT_EQ(window(DType::f32, DType::f32, {1 + tiny, tiny}), 1 + 2 * tiny);
  EXPECT_EQ(window(DType::f16, DType::f16, {2048, 1, 1}), 2048.0f);
  EXPECT_EQ(window(DType::f32, DType::f16, {2048, 1, 1}), 2050.0f);
  EXPECT_EQ(window(DType::f32, DType::f16, {0x1p-26f}), 0.0f) << "below f16's range";
}

TEST(Precision, TheSumOfOneBackwardIsRoundedOnce) {
  for (DType buffer : {DType::bf16, DType::f32}) {
    const Tensor x = leaf(full({1}, 1));
    leaf_of(x).dtype = DType::bf16;
    leaf_of(x).grad = zeros({1}, buffer);
    Tensor y = ops::scale(x, 1);
    for (int i = 0; i < 4; ++i) y = ops::add(y, ops::scale(x, 0x1p-9f));
    backward(ops::sum(y));
    EXPECT_EQ(floats(grad(x))[0], 1 + 0x1p-7f) << "1, were each addition rounded";
    // 1.00390625 is a tie, which goes to 1; three of them are 3.0117, nearest to 3.015625.
    leaf_of(x).landing = Landing::overwrite;
    const auto term = [&] { return ops::scale(x, 1 + 0x1p-8f); };
    backward(ops::sum(ops::add(ops::add(term(), term()), term())));
    EXPECT_EQ(floats(grad(x))[0], 3.015625f) << "3, were each contribution rounded";
  }
}

TEST(Precision, ATiedWeightsContributionsMeetInItsDtype) {
  const Tensor w = leaf(randn({4, 4}, 1), DType::bf16), ids = from_values<int64_t>({1, 3, 1});
  leaf_of(w).dtype = DType::f16;
  const Tensor x = ops::embedding(w, ids);
  backward(ops::sum(ops::linear(x, w)));
  const Tensor wide = leaf(in_dtype(w, DType::f32));
  backward(ops::sum(ops::linear(ops::embedding(wide, ids), wide)));
  EXPECT_EQ(grad(w).dtype(), DType::f16);
  EXPECT_TRUE(near(in_dtype(grad(w), DType::f32), grad(wide), 0x1p-8));
}

TEST(Precision, ALeafsGradientIsWrittenInPlaceWhereDtypesAgree) {
  const Tensor x = randn({3, 4}, 2);
  for (DType buffer : {DType::bf16, DType::f32}) {
    const Tensor w = leaf(randn({5, 4}, 1));
    leaf_of(w).dtype = DType::bf16;
    leaf_of(w).grad = full({5, 4}, NAN, buffer);
    const uint64_t before = grad(w).version();
    backward(ops::sum(ops::linear(x, w)));
    EXPECT_EQ(grad(w).version(), before + 1) << "written once, by the product or by the landing";
    const Floats rounded = floats(in_dtype(in_dtype(grad(w), DType::bf16), DType::f32));
    EXPECT_EQ(floats(grad(w)), rounded);
  }
}

// Sums of 8192 ones: adding in bf16 stops at 256, in f16 at 2048.
TEST(Precision, LongSumsDoNotStall) {
  constexpr int64_t kRows = 8192;
  for (DType dtype : test::kNarrow) {
    const Tensor w = leaf(full({2, 3}, 1), dtype), b = leaf(full({2}, 0), dtype);
    const Tensor x = full({kRows, 3}, 1, dtype);
    backward(ops::sum(ops::linear(x, w, b)));
    EXPECT_EQ(floats(grad(b)), Floats(2, kRows)) << "bias";
    EXPECT_EQ(floats(grad(w)), Floats(6, kRows)) << "weight";
    const Tensor table = leaf(full({4, 2}, 1), dtype), ids = zeros({kRows}, DType::i32);
    backward(ops::sum(ops::embedding(table, ids)));
    EXPECT_EQ(floats(grad(table)), (Floats{kRows, kRows, 0, 0, 0, 0, 0, 0})) << "embedding";
    const Tensor c = leaf(full({3}, 1), dtype);
    backward(ops::sum(ops::add(x, c)));
    EXPECT_EQ(floats(grad(c)), Floats(3, kRows)) << "what was stretched";
    EXPECT_EQ(ops::sum(x).item(), 3.0 * kRows);
    EXPECT_EQ(ops::mean(x).item(), 1.0);
    const Tensor gamma = leaf(full({2}, 1), dtype), beta = leaf(full({2}, 0), dtype);
    const Tensor rows = in_dtype(from_values(Floats(2 * kRows, 0.0f), {kRows, 2}), dtype);
    for (int64_t i = 0; i < kRows; ++i)
      static_cast<uint16_t*>(rows.mutable_bytes_data())[2 * i] =
          dtype == DType::f16 ? half(1).bits : bfloat16(1).bits;
    backward(ops::sum(ops::layer_norm(rows, gamma, beta, 0)));  // [1, 0] becomes [1, -1]
    EXPECT_EQ(floats(grad(beta)), Floats(2, kRows));
    EXPECT_EQ(floats(grad(gamma)), (Floats{kRows, -kRows}));
  }
}

struct Careless final : Node {
  std::string_view name() const override { return "careless"; }
  Tensors backward(const Tensors& dy) override { return {in_dtype(dy[0], DType::f32)}; }
};

TEST(Precision, AGradientOfTheWrongDtypeIsRefused) {
  const Tensor w = leaf(full({2}, 1), DType::bf16);
  const Tensor x = ops::gelu(w);
  const Tensor y = record<Careless>(in_dtype(x, DType::bf16), {x}, [](Careless&) {});
  EXPECT_EQ(error_of([&] { backward(y, full({2}, 1, DType::bf16)); }),
            "[autograd.backward] gradient of a result of gelu; expected bf16, got f32 [2]");
  EXPECT_EQ(error_of([&] { backward(ops::gelu(w), full({2}, 1)); }),
            "[autograd.backward] gradient given; expected bf16 [2], got f32 [2]");
}

// ---------------------------------------------------------------- autocast

TEST(Autocast, NestsAndTheInnermostCounts) {
  const Tensor x = randn({2, 3}, 1), w = randn({4, 3}, 2);
  const auto dtype = [&] { return ops::linear(x, w).dtype(); };
  EXPECT_EQ(dtype(), DType::f32);
  {
    const Autocast outer(DType::bf16);
    EXPECT_EQ(dtype(), DType::bf16);
    {
      const Autocast inner(DType::f32);
      EXPECT_EQ(dtype(), DType::f32);
      EXPECT_EQ(autocast_dtype(), DType::f32);
    }
    EXPECT_EQ(dtype(), DType::bf16);
    try {
      const Autocast inner(DType::f16);
      EXPECT_EQ(dtype(), DType::f16);
      throw UsageError("on the way out");
    } catch (const UsageError&) {
    }
    EXPECT_EQ(dtype(), DType::bf16);
  }
  EXPECT_EQ(autocast_dtype(), std::nullopt);
  EXPECT_EQ(error_of([] { Autocast(DType::i32); }),
            "[autograd.autocast] expected f32, f16 or bf16, got i32");
}

TEST(Autocast, BelongsToItsThread) {
  const Autocast here(DType::bf16);
  std::thread([] {
    EXPECT_EQ(autocast_dtype(), std::nullopt);
    const Autocast there(DType::f16);
    EXPECT_EQ(autocast_dtype(), DType::f16);
  }).join();
  EXPECT_EQ(autocast_dtype(), DType::bf16);
}

TEST(Autocast, BackwardRepeatsWhatForwardDid) {
  const Tensor w = leaf(randn({4, 3}, 2)), x = randn({2, 3}, 1);
  const auto gradient = [&](bool outside) {
    leaf_of(w).landing = Landing::overwrite;
    std::optional<Autocast> autocast(DType::bf16);
    const Tensor y = ops::sum(ops::gelu(ops::linear(x, w)));
    if (outside) autocast.reset();
    backward(y);
    return values(grad(w));
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(Autocast, AWeightIsCastOnceAVersion) {
  const Tensor w = leaf(randn({4, 3}, 2)), x = randn({2, 3}, 1);
  const Tensor copy = cast_of(w, DType::bf16);
  const uint64_t first = copy.version();
  for (int micro = 0; micro < 3; ++micro) {
    const Autocast autocast(DType::bf16);
    backward(ops::sum(ops::linear(x, w)));
  }
  EXPECT_TRUE(cast_of(w, DType::bf16).is(copy));
  EXPECT_EQ(copy.version(), first) << "cast again though nothing changed";
  kernel::fill(w, 3);  // a step
  for (int micro = 0; micro < 3; ++micro) {
    const Autocast autocast(DType::bf16);
    EXPECT_EQ(floats(ops::linear(full({1, 3}, 1), w)), Floats(4, 9.0f)) << "the new value";
  }
  EXPECT_EQ(copy.version(), first + 1) << "in place, once";
  EXPECT_EQ(cast_of(w, DType::f16).dtype(), DType::f16);
  EXPECT_TRUE(cast_of(w, DType::f32).is(w)) << "nothing to cast";
  const Tensor plain = randn({4}, 1);
  EXPECT_FALSE(cast_of(plain, DType::bf16).is(cast_of(plain, DType::bf16))) << "leaves only";
  EXPECT_EQ(error_of([] { cast_of(zeros({2}, DType::i64), DType::bf16); }),
            "[autograd.autocast] expected floating dtypes, got i64 [2] to become bf16");
}

TEST(Autocast, TheCopyIsReleasedWithItsLeaf) {
  constexpr int64_t kElements = 1 << 20;
  Tensor w = leaf(zeros({kElements}));
  const int64_t before = host_allocator().stats().live;
  cast_of(w, DType::bf16);
  EXPECT_GE(host_allocator().stats().live, before + 2 * kElements);
  w = Tensor();
  EXPECT_LE(host_allocator().stats().live, before - 4 * kElements + 4096);
}

// As of a weight that is saved itself: an error, never a gradient of mixed weights.
TEST(Autocast, AWeightThatWasCastAgainMeanwhileIsRefused) {
  const Tensor w = leaf(randn({4, 3}, 2)), x = leaf(randn({2, 3}, 1));
  const Autocast autocast(DType::bf16);
  const Tensor y = ops::sum(ops::linear(x, w));
  kernel::fill(w, 3);
  ops::linear(x, w);
  EXPECT_NE(error_of([&] { backward(y); }).find("[autograd.linear] a tensor (bf16 [4, 3]) saved"),
            std::string::npos);
}

TEST(Autocast, AWarmStepAsksTheSystemForNothing) {
  const Tensor w = leaf(randn({32, 32}, 2)), b = leaf(randn({32}, 3)), x = randn({64, 32}, 1);
  for (const Tensor& t : {w, b}) leaf_of(t).dtype = DType::bf16;
  const auto step = [&] {
    for (int micro = 0; micro < 2; ++micro) {
      const Autocast autocast(DType::bf16);
      const Tensor y = ops::gelu(ops::linear(ops::linear(x, w, b), w, b));
      backward(ops::sum(y));
    }
    kernel::scale(w, w, 0.5f);
  };
  for (int i = 0; i < 3; ++i) step();
  const int64_t before = host_allocator().stats().system_calls;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(host_allocator().stats().system_calls, before);
}

// ---------------------------------------------------------------- a block

// One transformer block and a loss.
struct Block {
  std::vector<Tensor> parameters;

  explicit Block(DType dtype = DType::f32, DType gradients = DType::f32) {
    const Shape shapes[] = {{16}, {16}, {48, 16}, {16, 16}, {16}, {16}, {32, 16}, {32}, {16, 32}};
    for (size_t i = 0; i < std::size(shapes); ++i) {
      const bool gain = i == 0 || i == 4;
      Tensor value = randn(shapes[i], i + 1, gain ? 0.1 : 0.3);
      if (gain) kernel::binary(value, value, full({1}, 1), kernel::Binary::add);
      parameters.push_back(leaf(value, dtype));
      leaf_of(parameters.back()).dtype = gradients;
    }
  }
  // f32 leaves with these values.
  Block widened() const {
    Block wide;
    for (size_t i = 0; i < parameters.size(); ++i) kernel::cast(wide.parameters[i], parameters[i]);
    return wide;
  }
  Tensor loss() const {
    using namespace ops;
    const auto& p = parameters;
    const Tensor x = randn({2, 6, 16}, 77),
                 targets = from_values<int64_t>({1, 5, 0, 3, 2, 15, 7, 7, 4, 8, 1, 9});
    const Tensor mixed =
        linear(attention(linear(layer_norm(x, p[0], p[1]), p[2]), {.heads = 2}), p[3]);
    const auto [sum, out] = residual_layer_norm(mixed, x, p[4], p[5]);
    const Tensor hidden = linear(bias_gelu(linear(out, p[6]), p[7]), p[8]);
    return softmax_cross_entropy_sum(add(sum, hidden), targets);
  }
  double train(std::optional<DType> compute) const {
    std::optional<Autocast> autocast;
    if (compute) autocast.emplace(*compute);
    const Tensor y = loss();
    backward(y);
    return y.item();
  }
};

TEST(Autocast, GradientsAgreeWithF32WithinTheRounding) {
  const Block exact;
  const double expected = exact.train({});
  for (DType compute : test::kNarrow) {
    const double rounding = compute == DType::bf16 ? 0x1p-8 : 0x1p-11;
    const Block low;
    EXPECT_NEAR(low.train(compute), expected, 2 * rounding * expected);
    double furthest = 0;
    for (size_t i = 0; i < exact.parameters.size(); ++i) {
      const Tensor got = grad(low.parameters[i]), want = grad(exact.parameters[i]);
      EXPECT_EQ(got.dtype(), DType::f32) << i;
      EXPECT_TRUE(near(got, want, 6 * rounding)) << "parameter " << i;
      for (int64_t k = 0; k < got.numel(); ++k)
        furthest =
            std::max(furthest, std::abs(double{got.data<float>()[k]} - want.data<float>()[k]));
    }
    EXPECT_GT(furthest, 0) << "nothing was rounded";
  }
}

TEST(Autocast, AllInLowPrecisionStillAgrees) {
  for (DType dtype : test::kNarrow) {
    const double rounding = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    const Block low(dtype, dtype), exact = low.widened();
    const double expected = exact.train({});
    EXPECT_NEAR(low.train({}), expected, 2 * rounding * expected);
    for (size_t i = 0; i < exact.parameters.size(); ++i) {
      EXPECT_EQ(grad(low.parameters[i]).dtype(), dtype) << i;
      EXPECT_TRUE(near(in_dtype(grad(low.parameters[i]), DType::f32), grad(exact.parameters[i]),
                       8 * rounding))
          << "parameter " << i;
    }
  }
}

TEST(Autocast, F32WithNarrowParametersIsF32OnTheRoundedOnes) {
  for (DType dtype : test::kNarrow) {
    const Block low(dtype, DType::f32), wide = low.widened();
    EXPECT_EQ(low.train(DType::f32), wide.train({}));
    for (size_t i = 0; i < low.parameters.size(); ++i)
      EXPECT_EQ(values(grad(low.parameters[i])), values(grad(wide.parameters[i]))) << i;
  }
}

// Weights, casts and autocast of one thread are not those of another.
TEST(Autocast, ThreadsTrainApart) {
  const auto train = [](DType compute) {
    const ThreadBudget one(1);
    const Block block;
    for (int step = 0; step < 5; ++step) {
      block.train(compute);
      for (const Tensor& p : block.parameters) {
        kernel::add_scaled(p, grad(p), -0.01f);
        leaf_of(p).landing = Landing::overwrite;
      }
    }
    std::vector<Floats> result;
    for (const Tensor& p : block.parameters) result.push_back(values(p));
    return result;
  };
  constexpr DType kComputes[] = {DType::bf16, DType::f16, DType::f32, DType::bf16};
  std::vector<std::vector<Floats>> together(std::size(kComputes));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::size(kComputes); ++i)
    threads.emplace_back([&, i] { together[i] = train(kComputes[i]); });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < std::size(kComputes); ++i) EXPECT_EQ(together[i], train(kComputes[i]));
  EXPECT_NE(together[0], together[1]);
  EXPECT_NE(together[0], together[2]);
}

// dL/dy = 2^-26 lies below f16's range: gone unless the loss is scaled, exact with 2^12.
TEST(Autocast, SmallGradientsVanishInF16UnlessScaled) {
  const Tensor x = from_values<float>({1, 2, 3, 4}, {2, 2});
  const auto gradient = [&](DType compute, float scale) {
    const Tensor w = leaf(full({1, 2}, 0.5));
    const Autocast autocast(compute);
    const Tensor y = ops::multiply(ops::linear(x, w), full({1}, 0x1p-26));
    backward(ops::scale(ops::sum(y), scale));
    Floats g = values(grad(w));
    for (float& v : g) v /= scale;
    return g;
  };
  const Floats exact{4 * 0x1p-26f, 6 * 0x1p-26f};  // column sums of x
  EXPECT_EQ(gradient(DType::f32, 1), exact);
  EXPECT_EQ(gradient(DType::bf16, 1), exact) << "bf16 has the range of f32";
  EXPECT_EQ(gradient(DType::f16, 1), (Floats{0, 0}));
  EXPECT_EQ(gradient(DType::f16, 4096), exact);
}

}  // namespace
}  // namespace lockstep::autograd

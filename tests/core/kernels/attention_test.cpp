#include "core/kernels/attention.h"

#include "tests/support/kernel_calls.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

class Attention : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Attention);

enum class Mask { full, causal };

void compare(int64_t batch, int64_t positions, int heads, int64_t width, Mask mask,
             std::vector<int64_t> lengths = {}) {
  const int64_t channels = heads * width;
  const Tensor qkv = random_tensor({batch, positions, 3 * channels}, 1),
               dout = random_tensor({batch, positions, channels}, 2, 1, Placed::unaligned);
  kernel::AttentionOptions options{.heads = heads, .causal = mask == Mask::causal};
  if (lengths.empty())
    lengths.assign(batch, positions);
  else
    options.lengths = from_values(std::vector<int32_t>(lengths.begin(), lengths.end()));
  // What lies beyond a length is never read: NaN there changes nothing.
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = lengths[b]; t < positions; ++t) {
      std::fill_n(qkv.mutable_data<float>() + (b * positions + t) * 3 * channels, 3 * channels,
                  NAN);
      std::fill_n(dout.mutable_data<float>() + (b * positions + t) * channels, channels, NAN);
    }
  const AttentionPasses got = attention(qkv, dout, options);
  const naive::Attention expected = naive::attention(doubles(qkv), doubles(dout), lengths,
                                                     positions, heads, width, options.causal);
  const std::string what = "T " + std::to_string(positions) + " width " + std::to_string(width);
  expect_close(got.out, expected.out, 1e-5, 3e-6, what + " out");
  expect_close(got.dqkv, expected.dqkv, 1e-4, 2e-5, what + " dqkv");
}

TEST_P(Attention, CausalOfAllShapes) {
  for (int64_t positions :
       {1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 24, 25, 33, 64, 100})
    compare(2, positions, 2, 16, Mask::causal);
  for (int64_t width : {1, 3, 5, 8, 15, 17, 24, 32, 33, 64, 80, 128})
    compare(1, 35, 3, width, Mask::causal);
}

TEST_P(Attention, FullOfAllShapes) {
  for (int64_t positions : {1, 2, 6, 7, 9, 12, 16, 20, 33, 64, 100})
    compare(2, positions, 2, 16, Mask::full);
  for (int64_t width : {1, 5, 24, 64, 128}) compare(1, 35, 3, width, Mask::full);
}

TEST_P(Attention, LongSequencesGoInSeveralStrips) {
  compare(1, 700, 1, 8, Mask::causal);
  compare(1, 700, 1, 8, Mask::full);
  compare(1, 1100, 1, 4, Mask::causal, {1001});
}

TEST_P(Attention, LengthsHideWhatLiesBeyond) {
  for (Mask mask : {Mask::causal, Mask::full}) {
    compare(4, 33, 2, 16, mask, {0, 1, 17, 33});
    compare(3, 40, 1, 32, mask, {5, 39, 8});
  }
}

TEST_P(Attention, LargeScoresAreFinite) {
  const Tensor qkv = random_tensor({1, 20, 48}, 3, 1e4), dout = random_tensor({1, 20, 16}, 4);
  const AttentionPasses r = attention(qkv, dout, {.heads = 1});
  for (const Tensor& x : {r.out, r.lse, r.dqkv})
    for (float v : values(x)) EXPECT_TRUE(std::isfinite(v));
}

TEST_P(Attention, NothingToAttendToIsFine) {
  for (const Shape& shape : {Shape{0, 4, 12}, Shape{2, 0, 12}}) {
    const Tensor qkv = zeros(shape), dout = zeros({shape[0], shape[1], 4});
    EXPECT_EQ(attention(qkv, dout, {.heads = 2}).out.numel(), 0);
  }
}

TEST_P(Attention, WrongOptionsAreRefused) {
  const Tensor qkv = zeros({1, 4, 12}), out = zeros({1, 4, 4}), lse = zeros({1, 3, 4});
  EXPECT_THROW(kernel::attention(out, lse, qkv, {.heads = 3}), UsageError);
  EXPECT_THROW(kernel::attention(out, lse, qkv, {.heads = 0}), UsageError);
  for (int32_t length : {-1, 5})
    EXPECT_THROW(kernel::attention(out, zeros({1, 2, 4}), qkv,
                                   {.heads = 2, .lengths = from_values<int32_t>({length})}),
                 UsageError);
}

}  // namespace
}  // namespace lockstep::test

// fp16, bf16 and fp8 as codes.
#include <cstring>
#include <limits>

#include "coding.h"
#include "core/check.h"
#include "core/dtype.h"

namespace lockstep::distributed {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();
uint16_t short_at(const Coder& coder, size_t i) {
  uint16_t code;
  std::memcpy(&code, coder.code.data() + 2 * i, 2);
  return code;
}

TEST(CastCodes, Fp16IsScaledByWhatTheSumOfAllRanksMayBe) {
  Coder coder("fp16");
  coder.ranks = 4;
  // 4 · 1e-6 · 2^32 <= 2^15: the element is 2^32 / 1e6, in the middle of what f16 has.
  const Floats x = coder.through({1e-6f, -5e-7f, 3e-9f});
  EXPECT_EQ(coder.amplitudes[0], 4e-6f);
  EXPECT_EQ(short_at(coder, 0), half_bits(1e-6f * 0x1p32f));
  EXPECT_NEAR(x[2], 3e-9, 3e-9 * 0x1p-11) << "no f16 by itself";
  // The largest sum fits.
  EXPECT_LE(4 * half_value(short_at(coder, 0)), 65504);
}

TEST(CastCodes, SumsOfScaledCodesAreSumsOfTheirValues) {
  const Floats a = normal_numbers(1000, 1, 1e-9), b = normal_numbers(1000, 2, 3e-9);
  Coder left("fp16"), right("fp16");
  for (Coder* coder : {&left, &right}) {
    coder->fixed_amplitudes = true;
    coder->amplitudes = {2 * 1.5e-8f};
    coder->ranks = 2;
  }
  const Floats x = left.through(a), y = right.through(b);
  Coder sum("fp16");
  sum.ends = left.ends;
  sum.amplitudes = left.amplitudes;
  sum.code = left.code;
  for (size_t i = 0; i < a.size(); ++i) {
    const uint16_t added =
        half_bits(half_value(short_at(left, i)) + half_value(short_at(right, i)));
    std::memcpy(sum.code.data() + 2 * i, &added, 2);
  }
  const Floats both = sum.decode();
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(both[i], x[i] + y[i], std::abs(x[i] + y[i]) * 0x1p-11 + 1e-15);
}

TEST(CastCodes, WithoutAScaleTheyAreWhatAWireOfTheirTypeCarries) {
  const Floats x = {1.0009765f, -3e-8f, 65504, 0.1f};
  Coder half("fp16:scale=none"), bfloat("bf16");
  EXPECT_FALSE(half.compressor->shares_amplitudes());
  EXPECT_FALSE(bfloat.compressor->shares_amplitudes());
  half.encode(x);
  bfloat.encode(x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(short_at(half, i), half_bits(x[i]));
    EXPECT_EQ(short_at(bfloat, i), bfloat16_bits(x[i]));
  }
  EXPECT_EQ(half.compressor->adds_as(), DType::f16);
  EXPECT_EQ(bfloat.compressor->adds_as(), DType::bf16);
}

TEST(CastCodes, WhatIsBeyondF16SkipsTheStepAndWhatIsBeyondBf16IsItsLargest) {
  Coder half("fp16:scale=none");
  EXPECT_FALSE(half.encode({1, 70000}).finite);
  EXPECT_EQ(half.decode(), (Floats{0, 0}));
  Coder bfloat("bf16");
  const Encoded made = bfloat.encode({1, -kMost});
  EXPECT_TRUE(made.finite);
  EXPECT_EQ(made.saturated, 1);
  EXPECT_EQ(bfloat.decode(), (Floats{1, bfloat16_value(0xff7f)}));
  for (const char* spec : {"fp16", "bf16:scale=amplitude", "fp8", "fp8:e5m2", "fp8:block=8"}) {
    const Floats x = Coder(spec).through({kMost, 0, -kMost});
    EXPECT_NEAR(x[0] / kMost, 1, 0x1p-2) << spec;
    EXPECT_EQ(x[1], 0);
    EXPECT_EQ(x[2], -x[0]);
  }
}

TEST(CastCodes, PiecesHaveScalesOfTheirOwn) {
  const Floats x = {1e6f, 1e-9f, 2e-9f, 0};
  for (const char* spec : {"fp16:scope=tensor", "fp8", "fp8:e5m2"}) {
    Coder coder(spec);
    EXPECT_EQ(coder.compressor->scope(), Compressor::Scope::tensor);
    const Floats got = coder.through(x, {1, 3, 3, 4});
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], x[i], std::abs(x[i]) / 8) << spec;
  }
  EXPECT_EQ(Coder("fp16").through(x)[1], 0) << "of one piece it vanishes";
}

TEST(KnownFaults, O13_Fp8ScaledByTheLargest) {
  for (const char* spec : {"fp8", "fp8:e4m3", "fp8:format=e4m3", "fp8:e4m3,block=8"}) {
    Coder coder(spec);
    EXPECT_EQ(coder.through({896, -896, 2}), (Floats{896, -896, 2})) << spec;
    EXPECT_EQ(coder.code[0], std::byte{126}) << "2^-1";
    EXPECT_EQ(coder.code[1], std::byte{0x7e}) << "the largest code, 448";
  }
  EXPECT_EQ(Coder("fp8:e5m2").through({57344, 1}), (Floats{57344, 1}));
}

TEST(KnownFaults, O13_Fp8UnderflowIsCounted) {
  Coder coder("fp8");
  const Encoded made = coder.encode({448, 0x1p-10f, 1.5f * 0x1p-10f, 0});
  EXPECT_EQ(coder.decode(), (Floats{448, 0, 0x1p-9f, 0}));
  EXPECT_EQ(made.underflowed, 1);
  EXPECT_EQ(made.saturated, 0);
  EXPECT_FALSE(coder.encode({1, NAN}).finite);
  EXPECT_EQ(coder.decode(), (Floats{0, 0}));
}

TEST(CastCodes, Fp8TakesAByteAnElementAndAPower) {
  Coder coder("fp8");
  const Encoded made = coder.encode(normal_numbers(100, 1), {10, 100});
  EXPECT_EQ(made.bytes.payload, 100);
  EXPECT_EQ(made.bytes.scales, 2);
  Coder blocks("fp8:block=16");
  EXPECT_EQ(blocks.encode(normal_numbers(100, 1), {10, 100}).bytes.scales, 7);
  EXPECT_FALSE(coder.compressor->adds_as());
}

TEST(CastCodes, WhatIsNoCodeIsRefused) {
  for (const char* spec : {"fp16", "bf16", "fp8", "fp8:block=8"}) {
    Coder coder(spec);
    coder.encode(normal_numbers(33, 1));
    coder.code.pop_back();
    EXPECT_THROW(coder.decode(), BadCode) << spec;
    coder.code.clear();
    EXPECT_THROW(coder.decode(), BadCode) << spec;
  }
  Coder coder("fp8");
  coder.encode(normal_numbers(33, 1));
  for (size_t at : {0, 1, 33}) {
    const std::byte was = coder.code[at];
    coder.code[at] = std::byte{0xff};
    EXPECT_THROW(coder.decode(), BadCode);
    coder.code[at] = was;
  }
}

TEST(CastCodes, NumbersThatAreNotFiniteAreNoCode) {
  for (const char* spec : {"fp16", "fp16:scale=none", "bf16", "bf16:scale=amplitude"})
    for (const int high : {0x7f, 0xff}) {
      Coder coder(spec);
      coder.encode(normal_numbers(33, 1));
      coder.code[64] = std::byte{0xff};
      coder.code[65] = static_cast<std::byte>(high);
      EXPECT_THROW(coder.decode(), BadCode) << spec;
    }
}

TEST(CastCodes, SettingsThatDoNotFitAreRefused) {
  for (const char* spec :
       {"fp8:e4m3,e5m2", "fp8:format=e3m4", "fp8:e4m3=off,format=x", "fp8:e4m3=off", "fp8:block=12",
        "fp8:scale=amplitude,block=8", "fp8:scale=1", "fp16:scale=all", "bf16:scope=row"})
    EXPECT_THROW(make_compressor(spec), UsageError) << spec;
}

// The power goes by the largest of all ranks: 2^-9 would be kept by a rank of its own power.
TEST(Fp8Code, ASharedAmplitudeGivesAllRanksOnePower) {
  Coder own("fp8"), shared("fp8:scale=amplitude");
  shared.fixed_amplitudes = true;
  shared.amplitudes = {896};
  const Floats x = {1, 0x1p-9f};
  EXPECT_EQ(own.through(x), x);
  const Encoded made = shared.encode(x);
  EXPECT_EQ(shared.decode(), (Floats{1, 0}));
  EXPECT_EQ(made.underflowed, 1);
  Coder largest("fp8:scale=amplitude");
  EXPECT_EQ(largest.through({896, 1}), (Floats{896, 1}));
  EXPECT_EQ(largest.amplitudes, (Floats{896}));
  EXPECT_EQ(largest.code[0], shared.code[0]);  // the power
}

}  // namespace
}  // namespace lockstep::distributed

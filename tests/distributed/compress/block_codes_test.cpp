// int8 and qsgd as codes: sizes, cases by hand, bytes from elsewhere. Grids and rounding are tested
// with their kernels.
#include "../codes.h"
#include "coding.h"
#include "core/check.h"

namespace lockstep::distributed {
namespace {

TEST(KnownFaults, O41_Int8GoesByEachRanksScale) {
  Coder a("int8"), b("int8");
  const Floats x = a.through({127, 10}), y = b.through({1.27f, -0.4f});
  EXPECT_NEAR((x[0] + y[0]) / 2, 64.135, 64.135e-6);
  EXPECT_NEAR((x[1] + y[1]) / 2, 4.8, 4.8e-6);
  EXPECT_EQ(Coder("int8").through({127, 10.9f, -10.9f}), (Floats{127, 11, -11})) << "not cut off";
  const Floats small = Coder("int8").through({1e-3f, -2e-4f, 0});
  EXPECT_NEAR(small[0], 1e-3, 1e-3 / 127);
  EXPECT_NEAR(small[1], -2e-4, 1e-3 / 254 * 1.0001);
}

TEST(KnownFaults, O41_MinMaxHasBothEnds) {
  EXPECT_EQ(Coder("int8:mode=minmax,bits=4").through({1, 2}), (Floats{1, 2}));
  EXPECT_EQ(Coder("int8:mode=minmax").through({1, 2}), (Floats{1, 2}));
  EXPECT_EQ(Coder("int8:mode=minmax").through({-3, -3}), (Floats{-3, -3}));
}

TEST(BlockCodes, TakeAsManyBytesAsTheySay) {
  const std::vector<int64_t> ends = {1000};
  const Pieces thousand{.ends = ends};
  const auto bytes = [&](const char* spec) { return make_compressor(spec)->max_bytes(thousand); };
  EXPECT_EQ(bytes("int8"), 1000 + 4 * 4);
  EXPECT_EQ(bytes("int8:1000"), 1000 + 4);
  EXPECT_EQ(bytes("int8:mode=minmax"), 1000 + 4 * 8);
  EXPECT_EQ(bytes("qsgd"), 500 + 2 * 4);
  EXPECT_EQ(bytes("qsgd:bits=3,block=8"), 375 + 125 * 4);
  Coder coder("qsgd:bits=3");
  const Encoded made = coder.encode(normal_numbers(5, 1));
  EXPECT_EQ(made.bytes.payload, 1);
  EXPECT_EQ(made.bytes.padding, 1);
  EXPECT_EQ(made.bytes.scales, 4);
}

// Blocks know nothing of parameters.
TEST(BlockCodes, RunAcrossPieces) {
  const Floats x = normal_numbers(1000, 1);
  for (const char* spec : {"int8", "qsgd", "int8:mode=minmax,round=stochastic"}) {
    Coder one(spec), many(spec);
    one.encode(x);
    many.encode(x, {1, 300, 300, 777, 1000});
    EXPECT_EQ(one.code, many.code) << spec;
  }
}

TEST(BlockCodes, RandomNumbersAreThoseOfSeedRankAndPlace) {
  const Floats x = normal_numbers(512, 1);
  Coder coder("qsgd");
  coder.encode(x);
  const auto first = coder.code;
  coder.encode(x);
  EXPECT_EQ(coder.code, first);
  coder.key = 2;
  coder.encode(x);
  EXPECT_NE(coder.code, first);
  coder.key = 1;
  coder.position = 512;
  coder.encode(x);
  EXPECT_NE(coder.code, first);
  coder.position = 0;
  coder.seed = 2;
  coder.encode(x);
  EXPECT_NE(coder.code, first);
}

TEST(BlockCodes, WhatIsNoCodeIsRefused) {
  Coder coder("int8");
  coder.encode(normal_numbers(300, 1));
  const auto good = coder.code;
  coder.code.pop_back();
  EXPECT_THROW(coder.decode(), BadCode);
  coder.code = good;
  coder.code.push_back({});
  EXPECT_THROW(coder.decode(), BadCode);
  coder.code = good;
  coder.code.back() = std::byte{0xff};  // 128 steps
  EXPECT_THROW(coder.decode(), BadCode);
  coder.code = good;
  coder.code[3] = std::byte{0xff};  // a negative step
  EXPECT_THROW(coder.decode(), BadCode);
  coder.code.clear();
  EXPECT_THROW(coder.decode(), BadCode);
}

TEST(BlockCodes, FeedbackOfWhatLosesMoreThanItIsGivenIsRefused) {
  for (const char* spec : {"qsgd:bits=1+ef", "qsgd:norm=l2+ef", "qsgd:norm=l2,bits=2,block=8+ef"})
    EXPECT_THROW(make_compressor(CompressSpec::parse(spec)), UsageError) << spec;
  for (const char* spec : {"qsgd:bits=1", "qsgd:norm=l2", "qsgd:norm=l2,bits=5+ef", "qsgd+ef",
                           "qsgd:bits=2,block=4096+ef", "qsgd:norm=l2,bits=3,block=32+ef:rescale"})
    EXPECT_TRUE(make_compressor(CompressSpec::parse(spec))) << spec;
}

// Whoever adds a code that loses more than it is given has to say so.
TEST(BlockCodes, ResidualsOfAllCodesStayBounded) {
  auto specs = all_codes();
  specs.insert(specs.end(), {"qsgd:bits=2,block=64", "qsgd:norm=l2,bits=5", "int8:bits=2",
                             "qsgd:norm=l2,bits=3,block=32", "int8:bits=2,round=stochastic"});
  for (const std::string& spec : specs) {
    Coder coder(spec);
    ASSERT_TRUE(coder.compressor->bounds_residuals()) << spec;
    if (coder.compressor->needs_owners()) continue;
    coder.feedback = true;
    double early = 0, late = 0;
    for (uint32_t step = 0; step < 600; ++step) {
      coder.position = 512 * step;
      coder.encode(normal_numbers(512, step));
      double squares = 0;
      for (const float r : coder.residual) squares += double{r} * double{r};
      if (step >= 250 && step < 300) early += squares;
      if (step >= 550) late += squares;
    }
    // Grows at most as a walk at random does that is sent now and then.
    EXPECT_LT(late, 3 * early + 512) << spec;
  }
}

TEST(BlockCodes, SettingsThatDoNotFitAreRefused) {
  for (const char* spec : {"int8:block=100", "int8:block=0", "int8:bits=9", "int8:mode=other",
                           "int8:round=up", "qsgd:bits=0", "qsgd:norm=l1", "qsgd:block=8192"})
    EXPECT_THROW(make_compressor(spec), UsageError) << spec;
}

}  // namespace
}  // namespace lockstep::distributed

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "codes.h"
#include "core/kernels/cpu/isa.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

Floats normal(size_t n, uint64_t seed) {
  const Random random(seed, RandomStream::tests);
  Floats x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}
int64_t sent_of(const Floats& seen) {
  return std::ranges::count_if(seen, [](float v) { return v != 0; });
}

TEST(KnownFaults, O17_TopKByMagnitude) {
  const Floats g = {-5, 1, 2, -3};
  OneRank rank("topk:ratio=0.25", {4});
  rank.with_feedback();
  EXPECT_EQ(rank.send(g), (Floats{-5, 0, 0, 0}));
  EXPECT_EQ(rank.residual, (Floats{0, 1, 2, -3}));
  EXPECT_EQ(rank.send(g), (Floats{0, 0, 0, -6}));
  EXPECT_EQ(rank.residual, (Floats{-5, 2, 4, 0}));
  EXPECT_EQ(rank.send(g), (Floats{-10, 0, 0, 0}));
  EXPECT_EQ(rank.residual, (Floats{0, 3, 6, -3}));
}

// The residual lies in flat coordinates: another layout of pieces goes on from it.
TEST(KnownFaults, O17_TheRecurrenceSurvivesAnotherLayout) {
  const Floats g = {-5, 1, 2, -3};
  OneRank rank("topk:ratio=0.25", {4});
  rank.with_feedback();
  Floats sum = rank.send(g);
  rank.ends = {2, 4};  // one of each
  for (int step = 2; step <= 3; ++step) {
    const Floats seen = rank.send(g);
    EXPECT_EQ(sent_of(seen), 2);
    for (size_t i = 0; i < 4; ++i) {
      sum[i] += seen[i];
      EXPECT_EQ(sum[i] + rank.residual[i], static_cast<float>(step) * g[i]);
    }
  }
}

TEST(KnownFaults, O42_MomentumOnceClearedWhereSent) {
  const Floats g = {8, 5};
  const auto trained = [&](const std::string& spec, OneRank& rank) {
    Floats w = {0, 0};
    rank.with_feedback();
    std::vector<Floats> sent;
    for (int step = 0; step < 3; ++step) {
      sent.push_back(rank.send(g));
      for (size_t i = 0; i < 2; ++i) w[i] -= sent.back()[i];
    }
    if (spec == "topk:ratio=0.5,momentum=0.5") {
      EXPECT_EQ(sent, (std::vector<Floats>{{8, 0}, {0, 12.5f}, {20, 0}}));
    }
    return w;
  };
  OneRank rank("topk:ratio=0.5,momentum=0.5", {2});
  EXPECT_EQ(trained("topk:ratio=0.5,momentum=0.5", rank), (Floats{-28, -12.5f}));
  EXPECT_EQ(rank.velocity, (Floats{0, 5}));
  EXPECT_EQ(rank.residual, (Floats{0, 5}));
  // What the case calls wrong is what other settings are for.
  OneRank unmasked("topk:ratio=0.5,momentum=0.5,masking=off", {2});
  EXPECT_EQ(trained("", unmasked), (Floats{-34, -12.5f}));
  OneRank without("topk:ratio=0.5", {2});
  EXPECT_EQ(trained("", without), (Floats{-24, -10}));
}

TEST(KnownFaults, O42_EachRankClipsToItsShareOfTheNorm) {
  OneRank rank("topk:ratio=1,clip=1", {2});
  rank.in.ranks = 4;
  rank.in.weight = 2;  // 2 samples on each of 4 ranks: the share of the mean is an eighth
  EXPECT_EQ(rank.send({24, 32}), (Floats{2.4f, 3.2f}));  // norm 5 to 0.5
  EXPECT_EQ(rank.send({2.4f, 3.1f}), (Floats{2.4f, 3.1f}));
  rank.in.scale = 1024;
  EXPECT_EQ(rank.send({24 * 1024, 32 * 1024}), (Floats{2.4f * 1024, 3.2f * 1024}));
  rank.with_feedback();
  rank.in.scale = 1;
  EXPECT_EQ(rank.send({24, 32}), (Floats{2.4f, 3.2f}));
}

TEST(KnownFaults, O42_TheRatioFallsFromTheFirstWindowOnAndStays) {
  OneRank rank("topk:ratio=0.001,warmup=8", {10000});
  const Floats x = normal(10000, 1);
  std::vector<int64_t> sent;
  for (int window = 0; window < 11; ++window) sent.push_back(sent_of(rank.send(x)));
  EXPECT_EQ(sent, (std::vector<int64_t>{2500, 2500, 625, 625, 156, 156, 39, 39, 10, 10, 10}));
  // A ratio that is no smaller than the first stage needs no warm-up.
  EXPECT_EQ(sent_of(OneRank("topk:ratio=0.25,warmup=8", {10000}).send(x)), 2500);
}

TEST(TopKCode, PiecesThatTravelWholeAreTrainedWithPlainMomentum) {
  OneRank rank("topk:ratio=0.01,dense_below=3,momentum=0.5", {2, 102});
  rank.with_feedback();
  Floats g(102, 0);
  g[0] = 8;
  g[1] = 5;
  float u = 0;
  for (int step = 0; step < 4; ++step) {
    u = 0.5f * u + 8;
    const Floats seen = rank.send(g);
    EXPECT_EQ(seen[0], u);
    EXPECT_EQ(seen[1], u * 5 / 8);
    EXPECT_EQ(rank.residual[0], 0);
  }
}

TEST(TopKCode, SendsAtLeastOneOfATensorAndNothingOfNone) {
  EXPECT_EQ(OneRank("topk", {1}).send({3}), (Floats{3}));
  EXPECT_EQ(OneRank("topk", {3, 6}).send({1, -2, 1, 0, 0, 5}), (Floats{0, -2, 0, 0, 0, 5}));
  EXPECT_EQ(OneRank("topk:scope=bucket", {6}).send({1, -2, 1, 0, 0, 5}),
            (Floats{0, 0, 0, 0, 0, 5}));
  EXPECT_EQ(OneRank("topk", {}).send({}), Floats{});
  EXPECT_EQ(OneRank("topk:ratio=1", {3}).send({1, 0, -2}), (Floats{1, 0, -2}));
}

TEST(TopKCode, OfTiesTheFirstAreSent) {
  EXPECT_EQ(OneRank("topk:ratio=0.5", {6}).send({1, -2, 2, -2, 2, 2}),
            (Floats{0, -2, 2, -2, 0, 0}));
  EXPECT_EQ(OneRank("topk:ratio=0.5", {4}).send({0, 0, 0, 0}), (Floats{0, 0, 0, 0}));
  OneRank few("topk:ratio=0.5", {6});
  EXPECT_EQ(few.send({0, 0, 0, 0, 0, 7}), (Floats{0, 0, 0, 0, 0, 7}));
  EXPECT_EQ(few.encoded.bytes.total(), few.code->max_bytes(few.in.pieces));
}

TEST(TopKCode, WhatIsNotFiniteBecomesTheCodeOfZeros) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const char* spec :
       {"topk:ratio=0.3", "topk:ratio=0.3,values=fp16", "topk:ratio=1,values=int8",
        "topk:ratio=0.3,select=sampled", "threshold:value=0.5", "randomk:ratio=0.5"})
    for (float bad : {INFINITY, -INFINITY, NAN})
      for (bool feedback : {false, true}) {
        OneRank rank(spec, {4, 10});
        if (feedback) rank.with_feedback();
        Floats x = normal(10, 1);
        x[7] = bad;
        EXPECT_EQ(rank.send(x), Floats(10, 0)) << spec;
        EXPECT_FALSE(rank.encoded.finite) << spec;
      }
  // Both may be finite and their sum not.
  OneRank rank("topk:ratio=0.5", {2});
  rank.with_feedback();
  rank.residual = {kMost, 0};
  rank.send({kMost, 0});
  EXPECT_FALSE(rank.encoded.finite);
  OneRank large("topk:ratio=0.5", {2});
  EXPECT_EQ(large.send({kMost, 0}), (Floats{kMost, 0}));
  EXPECT_TRUE(large.encoded.finite);
}

// Σ sent + residual = Σ raw, within the rounding of both sums; residuals are those of the
// unscaled gradient, whatever the scale.
TEST(TopKCode, WhatIsNotSentIsKept) {
  for (const char* spec :
       {"topk:ratio=0.1", "topk:ratio=0.1,values=fp16", "topk:ratio=0.1,values=bf16",
        "topk:ratio=0.1,values=int8", "topk:ratio=0.1,select=sampled", "topk:ratio=0.02,warmup=4",
        "topk:ratio=0.05,scope=bucket,dense_below=100", "threshold:value=1.5",
        "threshold:value=1.5,values=int8", "randomk:ratio=0.1", "randomk:ratio=0.1,values=fp16",
        "randomk:ratio=0.1,values=bf16"}) {
    const std::vector<int64_t> ends = {60, 61, 40000};
    OneRank rank(spec, ends), scaled(spec, ends);
    rank.with_feedback();
    scaled.with_feedback();
    scaled.in.scale = 4096;
    std::vector<double> sent(40000), raw(40000);
    for (uint64_t step = 0; step < 6; ++step) {
      const Floats x = normal(40000, step);
      Floats times = x;
      for (float& v : times) v *= 4096;
      rank.in.pieces.position = scaled.in.pieces.position = 40000 * step;
      const Floats seen = rank.send(x), seen_scaled = scaled.send(times);
      EXPECT_EQ(rank.encoded.bytes.total(), static_cast<int64_t>(rank.bytes.size()));
      for (size_t i = 0; i < seen.size(); ++i) {
        sent[i] += seen[i];
        raw[i] += x[i];
        ASSERT_NEAR(sent[i] + rank.residual[i], raw[i], 1e-5) << spec << " at " << i;
        // fp16 without a step of its own, as of randomk, is another for other scales.
        if (std::string(spec) != "randomk:ratio=0.1,values=fp16") {
          ASSERT_EQ(seen_scaled[i], 4096 * seen[i]) << spec << " at " << i;
        }
      }
    }
    EXPECT_GT(sent_of(rank.residual), 30000) << spec;
  }
}

TEST(TopKCode, PartsAreThoseOfTheWhole) {
  for (const char* spec :
       {"topk:ratio=0.1", "topk:ratio=0.1,values=fp16", "topk:ratio=0.5,values=int8",
        "topk:ratio=0.3,scope=bucket,values=bf16", "topk:ratio=0.1,momentum=0.9",
        "topk:ratio=0.1,select=sampled,values=int8", "topk:ratio=1", "threshold:value=1",
        "threshold:value=0.5,values=fp16", "randomk:ratio=0.1", "randomk:ratio=0.3,values=bf16"})
    for (const std::vector<int64_t>& borders : std::vector<std::vector<int64_t>>{
             {1000}, {333, 666, 1000}, {0, 1, 500, 1000}, {7, 7, 1000}}) {
      OneRank whole(spec, {60, 61, 1000}), cut(spec, {60, 61, 1000});
      whole.with_feedback();
      cut.with_feedback();
      for (uint64_t step = 0; step < 3; ++step) {
        const Floats x = normal(1000, step);
        EXPECT_EQ(cut.send_parts(x, borders), whole.send(x)) << spec;
        EXPECT_EQ(cut.residual, whole.residual) << spec;
        EXPECT_EQ(cut.velocity, whole.velocity) << spec;
      }
    }
}

TEST(TopKCode, SumsLoseNothing) {
  for (const char* spec : {"topk", "topk:values=int8", "threshold", "randomk:ratio=0.01"})
    for (size_t n : {0, 1, 5, 100, 7000})
      for (double share : {0.0, 0.01, 0.5, 0.99, 1.0}) {
        const auto code = make_compressor(spec);
        const std::vector<int64_t> ends =
            n == 0 ? std::vector<int64_t>{} : std::vector{static_cast<int64_t>(n)};
        ToEncode in;
        in.pieces.ends = ends;
        Floats sum = normal(n, 4);
        if (std::string(spec).starts_with("randomk")) {  // what ranks can send at all
          OneRank rank(spec, ends);
          sum = rank.send(sum);
          in.pieces.seed = rank.in.pieces.seed;
        } else {
          const Random random(9, RandomStream::tests);
          for (size_t i = 0; i < n; ++i)
            if (!(random.uniform(i) < share)) sum[i] = 0;
        }
        in.values = sum;
        std::vector<std::byte> bytes(static_cast<size_t>(code->max_sum_bytes(in.pieces, 4)));
        const Encoded encoded = code->encode_sum(in, bytes);
        ASSERT_TRUE(code->exact_sums() && encoded.finite);
        ASSERT_LE(encoded.bytes.total(), static_cast<int64_t>(bytes.size()));
        bytes.resize(static_cast<size_t>(encoded.bytes.total()));
        Floats out(n);
        code->decode_sum(bytes, in.pieces, {}, out);
        EXPECT_EQ(out, sum) << spec << ", " << share << " of " << n;
      }
}

TEST(TopKCode, ASampleKeepsToItsError) {
  const size_t n = 400'000;
  for (int spread = 0; spread < 3; ++spread) {
    Floats x = normal(n, 5);
    for (size_t i = 0; i < n; ++i) {
      if (spread == 1) x[i] = std::round(x[i]);   // ties: exact
      if (spread == 2 && i % 200 != 0) x[i] = 0;  // fewer than are wanted: exact
    }
    OneRank rank("topk:ratio=0.01,select=sampled,error=0.1", {static_cast<int64_t>(n)});
    const Floats seen = rank.send(x);
    std::vector<float> magnitudes;
    float least = INFINITY;
    int64_t sent = 0;
    for (float v : seen)
      if (v != 0) ++sent, least = std::min(least, std::abs(v));
    EXPECT_NEAR(static_cast<double>(sent), spread == 2 ? 2000 : 4000, spread == 0 ? 400 : 0);
    for (size_t i = 0; i < n; ++i)
      ASSERT_TRUE(seen[i] != 0 || std::abs(x[i]) <= least) << "the largest are sent";
  }
}

TEST(TopKCode, NeitherThreadsNorInstructionSetsChangeTheBytes) {
  const std::vector<int64_t> ends = {100, 150'000, 400'000};
  const Floats x = normal(400'000, 6);
  const cpu::Isa before = cpu::isa();
  for (const char* spec : {"topk:momentum=0.9,clip=0.01,values=int8", "topk:select=sampled",
                           "topk:values=fp16", "threshold:value=2", "randomk"}) {
    std::vector<std::byte> bytes;
    Floats residual;
    for (cpu::Isa isa : cpu::available_isas())
      for (int threads : {1, 3}) {
        cpu::use_isa(isa);
        const ThreadBudget budget(threads);
        OneRank rank(spec, ends);
        rank.with_feedback();
        for (int step = 0; step < 2; ++step) rank.send(x);
        if (bytes.empty()) bytes = rank.bytes, residual = rank.residual;
        EXPECT_EQ(rank.bytes, bytes) << spec;
        EXPECT_EQ(rank.residual, residual) << spec;
      }
  }
  cpu::use_isa(before);
}

TEST(TopKCode, TheWireIsWhatItSays) {
  OneRank rank("topk:ratio=0.01", {100'000});
  rank.send(normal(100'000, 2));
  const CodeBytes& bytes = rank.encoded.bytes;
  EXPECT_EQ(bytes.payload, 4000);
  EXPECT_EQ(bytes.indices + bytes.padding, 4 + 2 * (1000 + 1));
  EXPECT_EQ(bytes.scales, 0);
  rank = OneRank("topk:ratio=0.01,values=int8", {50'000, 100'000});
  rank.send(normal(100'000, 2));
  EXPECT_EQ(rank.encoded.bytes.payload, 1000);
  EXPECT_EQ(rank.encoded.bytes.scales, 8);
}

TEST(TopKCode, SettingsThatMakeNoSenseAreRefused) {
  for (const char* spec : {"topk:ratio=0", "topk:ratio=1.5", "topk:values=fp8", "topk:momentum=1",
                           "topk:select=some", "topk:warmup=-1", "threshold:value=-1",
                           "randomk:ratio=0", "randomk:values=int8", "topk:k=5"})
    EXPECT_THROW(make_compressor(spec), UsageError) << spec;
  EXPECT_NE(make_compressor("topk:0.02"), nullptr);
}

TEST(ThresholdCode, SendsWhatIsAtLeastThatLarge) {
  const Floats x = {0.5f, -1, 0.99f, 3, 0};
  OneRank rank("threshold:value=1", {5});
  EXPECT_EQ(rank.send(x), (Floats{0, -1, 0, 3, 0}));
  rank.in.weight = 2;  // the mean of two samples is half of it
  EXPECT_EQ(rank.send(x), (Floats{0, 0, 0, 3, 0}));
  rank.in.scale = 4;
  EXPECT_EQ(rank.send({2, -4, 4, 12, 8}), (Floats{0, 0, 0, 12, 8}));
  rank = OneRank("threshold:value=0", {5});
  EXPECT_EQ(rank.send(x), x);
  rank = OneRank("threshold:value=100", {5});
  EXPECT_EQ(rank.send(x), Floats(5, 0));
  EXPECT_EQ(rank.encoded.bytes.total(), 4);
}

TEST(ThresholdCode, ARankWithoutSamplesKeepsWhatItHas) {
  OneRank rank("threshold:value=1", {2});
  rank.with_feedback();
  rank.residual = {0.5f, 30};
  rank.in.weight = 0;
  EXPECT_EQ(rank.send({0, 0}), (Floats{0, 0}));
  EXPECT_EQ(rank.residual, (Floats{0.5f, 30}));
}

TEST(RandomKCode, IsUnbiasedWithoutFeedback) {
  const size_t n = 50;
  const Floats x = normal(n, 3);
  OneRank rank("randomk:ratio=0.2", {static_cast<int64_t>(n)});
  const int windows = 20000;
  std::vector<double> sums(n);
  for (int window = 0; window < windows; ++window) {
    rank.in.pieces.position = static_cast<uint64_t>(window) * (n + 3);
    const Floats seen = rank.send(x);
    for (size_t i = 0; i < n; ++i) sums[i] += seen[i];
  }
  for (size_t i = 0; i < n; ++i) {  // 5 x with probability 1/5: variance 4 x²
    const double sd = 2 * std::abs(x[i]) / std::sqrt(windows);
    EXPECT_NEAR(sums[i] / windows, x[i], 5 * sd) << i;
  }
}

TEST(RandomKCode, RanksDrawTheSameAndTheirCodesCanBeAdded) {
  OneRank a("randomk:ratio=0.1", {1003}), b("randomk:ratio=0.1", {1003});
  const Floats x = normal(1003, 1), y = normal(1003, 2);
  a.in.pieces.position = b.in.pieces.position = 12345;
  a.in.key = 2;
  b.in.key = 4;
  const Floats seen_x = a.send(x), seen_y = b.send(y);
  EXPECT_EQ(a.code->adds_as(), DType::f32);
  ASSERT_EQ(static_cast<int64_t>(a.bytes.size()), 4 * a.code->addends(a.in.pieces));
  std::vector<float> sum(a.bytes.size() / 4), other = sum;
  std::memcpy(sum.data(), a.bytes.data(), a.bytes.size());
  std::memcpy(other.data(), b.bytes.data(), b.bytes.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  std::memcpy(a.bytes.data(), sum.data(), a.bytes.size());
  const Floats seen = a.decoded(a.in.pieces);
  int64_t drawn = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen_x[i] != 0, seen_y[i] != 0) << i;
    EXPECT_EQ(seen[i], seen_x[i] + seen_y[i]);
    drawn += seen_x[i] != 0;
  }
  EXPECT_NEAR(static_cast<double>(drawn), 100.3, 1.5);  // one of each ten, but for the ends
  // Another window draws others.
  a.in.pieces.position += 1003;
  EXPECT_NE(a.send(x), seen_x);
}

TEST(RandomKCode, TakesAsManyBytesWhereverItBegins) {
  for (const char* spec :
       {"randomk:ratio=0.1", "randomk:ratio=1,values=fp16", "randomk:ratio=0.003"})
    for (int64_t n : {1, 9, 10, 11, 1000})
      for (uint64_t position = 0; position < 25; ++position) {
        OneRank rank(spec, {n});
        const int64_t expected = rank.code->max_bytes(rank.in.pieces);
        rank.in.pieces.position = position;
        rank.send(normal(static_cast<size_t>(n), 1));
        EXPECT_EQ(rank.encoded.bytes.total(), expected) << n << " from " << position;
      }
  const Floats x = normal(20, 1);
  EXPECT_EQ(OneRank("randomk:ratio=1", {20}).send(x), x);
}

}  // namespace
}  // namespace lockstep::distributed

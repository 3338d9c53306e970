// sign, its vote, and terngrad as codes.
#include <cstring>

#include "coding.h"
#include "core/check.h"

namespace lockstep::distributed {
namespace {

// What an owner makes of the codes of ranks that share amplitudes, and what everybody decodes.
struct Owner {
  explicit Owner(const char* spec) : spec_(spec) {}
  Floats sum_of(const std::vector<Floats>& ranks) {
    std::vector<Coder> coders;
    Floats amplitudes{0};
    for (const Floats& x : ranks) {
      Coder& coder = coders.emplace_back(spec_);
      coder.key = static_cast<uint32_t>(coders.size());
      coder.ranks = static_cast<int>(ranks.size());
      coder.encode(x);
      if (!coder.amplitudes.empty()) amplitudes[0] = std::max(amplitudes[0], coder.amplitudes[0]);
    }
    added.assign(ranks[0].size(), 0);
    for (size_t r = 0; r < ranks.size(); ++r) {
      Coder& coder = coders[r];
      coder.fixed_amplitudes = true;
      coder.amplitudes = amplitudes;
      EXPECT_TRUE(coder.encode(ranks[r]).finite);
      coder.compressor->decode_add(coder.code, coder.pieces(), amplitudes, added);
    }
    const Compressor& compressor = *coders[0].compressor;
    ToEncode in = coders[0].task(added);
    in.residual = residual;
    in.next = residual;
    in.amplitudes = amplitudes;
    code.assign(
        static_cast<size_t>(compressor.max_sum_bytes(in.pieces, static_cast<int>(ranks.size()))),
        {});
    made = compressor.encode_sum(in, code);
    EXPECT_EQ(made.bytes.total(), static_cast<int64_t>(code.size()));
    Floats out(added.size());
    compressor.decode_sum(code, in.pieces, amplitudes, out);
    return out;
  }
  Floats added, residual;
  std::vector<std::byte> code;
  Encoded made;

 private:
  std::string spec_;
};

TEST(KnownFaults, O41_SignGoesByTheMeanOfTheElementsThereAre) {
  Coder coder("sign");
  coder.feedback = true;
  const Floats p = {3, -1, 0, 0.5f, -0.5f};
  EXPECT_EQ(coder.through(p), (Floats{1, -1, 1, 1, -1})) << "zero is sent as plus";
  EXPECT_EQ(coder.residual, (Floats{2, 0, -1, -0.5f, 0.5f})) << "also at the zero";
  EXPECT_EQ(Coder("sign").through({-0.0f, 2}), (Floats{-1, 1})) << "by its sign bit";
  for (int64_t n = 1; n <= 17; ++n) {
    Coder one("sign");
    one.feedback = true;
    const Floats x = normal_numbers(n, static_cast<uint32_t>(n)), sent = one.through(x);
    double mean = 0;
    for (float v : x) mean += std::abs(v) / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(sent[i], std::copysign(mean, x[i]), mean * 0x1p-16);
      EXPECT_EQ(one.residual[i], x[i] - sent[i]);
    }
    EXPECT_EQ(static_cast<int64_t>(one.code.size()), 4 + (n + 7) / 8);
  }
}

TEST(KnownFaults, O41_AVoteOfTwoThatDisagreeIsZero) {
  Owner owner("sign:vote");
  // Means 2 and 1: both weigh 2. Sums 4, 0, -4; of those that are not zero the mean is 4.
  EXPECT_EQ(owner.sum_of({{2, 3, -1}, {1, -1, -1}}), (Floats{4, 0, -4}));
  EXPECT_EQ(owner.added, (Floats{4, 0, -4}));
}

TEST(SignCodes, TheMajorityCounts) {
  Owner owner("sign:vote");
  const Floats sum = owner.sum_of({{100, 1, -1}, {-1, 1, -1}, {-1, 1, 1}});
  EXPECT_LT(sum[0], 0) << "however large the minority";
  EXPECT_GT(sum[1], 0);
  EXPECT_LT(sum[2], 0);
  // A rank that has nothing does not vote.
  const Floats two = owner.sum_of({{1, -1}, {0, 0}});
  EXPECT_EQ(two, (Floats{1, -1}));
}

TEST(SignCodes, AVotesOwnerKeepsWhatTheResultLoses) {
  Owner owner("sign:vote");
  owner.residual = {0.5f, 0, -3};
  const Floats residual = owner.residual;
  const Floats sum = owner.sum_of({{1, 1, 1}, {1, -1, 1}});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(sum[i] + owner.residual[i], owner.added[i] + residual[i]) << i;
}

TEST(SignCodes, AnElementIsABitAndAPieceAScale) {
  Coder coder("sign");
  const Encoded made = coder.encode(normal_numbers(100, 1), {3, 3, 100});
  EXPECT_EQ(made.bytes.payload, 12);
  EXPECT_EQ(made.bytes.padding, 2);
  EXPECT_EQ(made.bytes.scales, 12);
  const Floats x = {1, -1, 1, 5, -5};
  EXPECT_EQ(Coder("sign").through(x, {3, 5}), x);
  EXPECT_EQ(Coder("sign:scope=bucket").compressor->scope(), Compressor::Scope::bucket);
  EXPECT_EQ(Coder("sign").through({0, 0, 0}), (Floats{0, 0, 0}));
}

TEST(SignCodes, WhatIsNoCodeIsRefused) {
  Coder coder("sign");
  coder.encode(normal_numbers(33, 1), {20, 33});
  const auto good = coder.code;
  for (float scale : {NAN, INFINITY, -1.0f, -0.0f}) {
    std::memcpy(coder.code.data() + 4, &scale, 4);
    EXPECT_THROW(coder.decode(), BadCode) << scale;
  }
  coder.code = good;
  coder.code.back() |= std::byte{0x80};  // after the last
  EXPECT_THROW(coder.decode(), BadCode);
  coder.code = good;
  coder.code.push_back({});
  EXPECT_THROW(coder.decode(), BadCode);
  Coder tern("terngrad");
  tern.encode(normal_numbers(33, 1));
  tern.code[2] = std::byte{0xff};  // 3 is no code
  EXPECT_THROW(tern.decode(), BadCode);
  tern.code.clear();
  EXPECT_THROW(tern.decode(), BadCode);
}

TEST(TernGrad, IsUnbiased) {
  const Floats x = {1, -0.25f, 0.01f, 0, -0.9f};
  const int trials = 20000;
  std::vector<double> sums(x.size());
  Coder coder("terngrad");
  for (int t = 0; t < trials; ++t) {
    coder.position = static_cast<uint64_t>(t) * 5;
    const Floats sent = coder.through(x);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(sent[i] == 0 || std::abs(sent[i]) == 1);
      sums[i] += sent[i];
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double p = std::abs(x[i]), sigma = std::sqrt(p * (1 - p) / trials);
    EXPECT_LE(std::abs(sums[i] / trials - x[i]), 5 * sigma + 1e-5) << x[i];
  }
}

TEST(TernGrad, SumsAreExactInAsFewBitsAsRanksNeed) {
  for (int ranks : {1, 2, 3, 4, 127, 128, 200}) {
    std::vector<Floats> all;
    for (int r = 0; r < ranks; ++r)
      all.push_back(normal_numbers(41, static_cast<uint32_t>(r), 1e-3));
    Owner owner("terngrad");
    EXPECT_EQ(owner.sum_of(all), owner.added) << ranks;
    const int bits = ranks == 1 ? 2 : ranks <= 3 ? 3 : ranks == 4 ? 4 : ranks == 127 ? 8 : 16;
    EXPECT_EQ(static_cast<int64_t>(owner.code.size()), 2 + (41 * bits + 7) / 8) << ranks;
  }
}

TEST(TernGrad, SumsFromElsewhereAreChecked) {
  Owner owner("terngrad");
  owner.sum_of({normal_numbers(10, 1), normal_numbers(10, 2)});
  const auto compressor = make_compressor("terngrad");
  const std::vector<int64_t> ends = {10};
  const Floats amplitudes = {1};
  const auto decode = [&](const std::vector<std::byte>& code) {
    Floats out(10);
    compressor->decode_sum(code, {.ends = ends}, amplitudes, out);
  };
  EXPECT_NO_THROW(decode(owner.code));
  auto bad = owner.code;
  bad[2] = std::byte{0x3f};  // 7 of 0 to 4
  EXPECT_THROW(decode(bad), BadCode);
  bad = owner.code;
  bad[0] = std::byte{0};  // of no ranks
  EXPECT_THROW(decode(bad), BadCode);
  bad[0] = std::byte{100};  // too short for that many
  EXPECT_THROW(decode(bad), BadCode);
  bad[1] = std::byte{0xff};
  EXPECT_THROW(decode(bad), BadCode);
  EXPECT_THROW(decode({}), BadCode);
}

}  // namespace
}  // namespace lockstep::distributed

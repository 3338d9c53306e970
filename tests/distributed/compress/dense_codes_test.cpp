// What holds for all codes that have a number for every element.
#include "coding.h"
#include "degenerate.h"

namespace lockstep::distributed {
namespace {

const std::vector<std::string> kNearest = {"fp16",
                                           "fp16:scale=none,scope=tensor",
                                           "bf16",
                                           "bf16:scale=amplitude",
                                           "fp8",
                                           "fp8:e5m2,scope=bucket",
                                           "fp8:block=16",
                                           "fp8:scale=amplitude",
                                           "int8",
                                           "int8:bits=3",
                                           "int8:mode=minmax",
                                           "sign",
                                           "sign:scope=bucket",
                                           "int8:block=8",
                                           "int8:mode=minmax,bits=2"};
const std::vector<std::string> kRandom = {
    "qsgd",     "qsgd:bits=7,block=8",   "qsgd:norm=l2",
    "terngrad", "int8:round=stochastic", "int8:mode=minmax,round=stochastic"};
std::vector<std::string> all() {
  std::vector<std::string> specs = kNearest;
  specs.insert(specs.end(), kRandom.begin(), kRandom.end());
  specs.insert(specs.end(), {"sign:vote", "qsgd:bits=1"});
  return specs;
}

// Error feedback's recurrence: all that went in is what came out and what is left.
TEST(DenseCodes, WhatIsSentAndWhatIsLeftIsWhatWasThere) {
  std::vector<std::string> specs = kNearest;
  specs.insert(specs.end(), kRandom.begin(), kRandom.end());
  for (const std::string& spec : specs) {
    Coder coder(spec);
    coder.feedback = true;
    coder.scale = 64;
    Floats sent(1000), raw(1000);
    double largest = 0;
    for (uint32_t step = 0; step < 20; ++step) {
      const Floats x = normal_numbers(1000, step, 64);
      coder.position = step * 1000;
      const Floats out = coder.through(x, {100, 1000});
      for (size_t i = 0; i < x.size(); ++i) {
        sent[i] += out[i] / coder.scale;
        raw[i] += x[i] / coder.scale;
        largest = std::max(largest, double{std::abs(sent[i])});
      }
    }
    for (size_t i = 0; i < raw.size(); ++i)
      ASSERT_NEAR(sent[i] + coder.residual[i], raw[i], 20 * 0x1p-22 * largest)
          << spec << ", element " << i;
  }
}

TEST(DenseCodes, DecodedNumbersAreEncodedAsTheyWere) {
  for (const std::string& spec : kNearest) {
    Coder coder(spec);
    const Floats decoded = coder.through(normal_numbers(1000, 1), {100, 100, 1000});
    const auto code = coder.code;
    EXPECT_EQ(coder.through(decoded, {100, 100, 1000}), decoded) << spec;
    EXPECT_EQ(coder.code, code) << spec;
  }
}

TEST(DenseCodes, EveryFiniteInputHasACode) {
  for (const std::string& spec : all())
    for (const auto& [name, x] : degenerate_inputs()) {
      const bool beyond_f16 = spec.starts_with("fp16:scale=none") &&
                              (name == "huge" || name == "largest" || name == "wide");
      Coder coder(spec);
      coder.feedback = true;
      const Encoded made = coder.encode(x);
      EXPECT_EQ(made.finite, !beyond_f16) << spec << ", " << name;
      const Floats out = coder.decode();
      ASSERT_EQ(out.size(), x.size());
      if (beyond_f16) continue;
      float largest = 0;
      for (float v : x) largest = std::max(largest, std::abs(v));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(std::isfinite(out[i])) << spec << ", " << name << ", " << x[i];
        // Nothing is sent that is much larger than what is there (a Euclidean norm is).
        const double most = spec == "qsgd:norm=l2" ? std::sqrt(1.0 * x.size()) : 1.126;
        EXPECT_LE(std::abs(out[i]), most * largest + 0x1p-116) << spec << ", " << name;
        if (largest < 1e30f) {
          EXPECT_FLOAT_EQ(coder.residual[i] + out[i], x[i]) << spec << ", " << name;
        }
      }
    }
}

TEST(DenseCodes, NotFiniteNumbersSendZeros) {
  for (const std::string& spec : all())
    for (float bad : {INFINITY, -INFINITY, NAN})
      for (size_t place : {0, 30, 49}) {
        Floats x = normal_numbers(50, 1);
        x[place] = bad;
        Coder coder(spec);
        EXPECT_FALSE(coder.encode(x, {20, 50}).finite) << spec;
        if (coder.amplitudes.size() == 2) {
          EXPECT_FALSE(std::isfinite(coder.amplitudes[place < 20 ? 0 : 1])) << spec;
        }
        for (float v : coder.decode()) ASSERT_EQ(v, 0) << spec;
      }
}

// Bytes from elsewhere, one changed at a time, and cut: refused or decoded, and nothing is written
// beyond the output.
TEST(DenseCodes, AnyBytesAreDecodedOrRefused) {
  for (const std::string& spec : all()) {
    Coder coder(spec);
    coder.encode(normal_numbers(77, 1), {20, 77});
    const auto good = coder.code;
    const auto attempt = [&](const std::vector<std::byte>& code) {
      Floats out(78, 5);
      try {
        // A copy of exactly its size, so that reading beyond it is seen by the sanitizers.
        const std::vector<std::byte> bytes(code);
        coder.compressor->decode_add(bytes, coder.pieces(), coder.amplitudes,
                                     std::span(out).first(77));
      } catch (const BadCode&) {
      }
      ASSERT_EQ(out[77], 5) << spec;
    };
    for (size_t i = 0; i < good.size(); ++i)
      for (int value : {0x00, 0x7f, 0x80, 0xff}) {
        auto code = good;
        code[i] = static_cast<std::byte>(value);
        attempt(code);
      }
    for (size_t size = 0; size < good.size(); ++size) {
      coder.code.assign(good.begin(), good.begin() + static_cast<int64_t>(size));
      EXPECT_THROW(coder.decode(), BadCode) << spec << ", " << size << " bytes";
    }
  }
}

}  // namespace
}  // namespace lockstep::distributed

#include "distributed/gradient_probe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/distributed/models.h"

namespace lockstep::distributed {
namespace {

// Two parameters, "a" of 4 and "b" of 2 elements.
class TwoVectors final : public layers::Module {
 public:
  TwoVectors() {
    add_parameter("a", a_, Decay::no);
    add_parameter("b", b_, Decay::no);
  }

 private:
  Tensor a_ = zeros({4}), b_ = zeros({2});
};

// In the flat buffer b comes first.
constexpr int kB = 0, kA = 1;

class Probe : public testing::Test {
 protected:
  TwoVectors module_;
  optim::FlatParams params_{module_};

  void see(GradientProbe& probe, GradientStage stage, const Tensor& values) const {
    probe.see(stage, params_.all(), values);
  }
};

TEST_F(Probe, CountsEveryKindAtEveryStageAndParameter) {
  GradientProbe probe(params_, DType::f32);
  probe.begin(1);
  const float inf = INFINITY;
  see(probe, GradientStage::scaled, from_values<float>({1, 3, 0, 1e-40f, inf, NAN}));
  const Magnitudes b = probe.at(ProbeStage::scaled, kB), a = probe.at(ProbeStage::scaled, kA);
  EXPECT_EQ(b.total, 2);
  EXPECT_EQ(b.by_power[127], 1);  // 1
  EXPECT_EQ(b.by_power[128], 1);  // 3
  EXPECT_EQ(a.total, 4);
  EXPECT_EQ(a.zeros, 1);
  EXPECT_EQ(a.subnormals, 1);
  EXPECT_EQ(a.infinities, 1);
  EXPECT_EQ(a.nans, 1);
  EXPECT_EQ(probe.total(ProbeStage::scaled).total, 6);
  EXPECT_DOUBLE_EQ(probe.total(ProbeStage::scaled).share(1), 1.0 / 6);
  EXPECT_EQ(probe.total(ProbeStage::wire).total, 0);
}

TEST_F(Probe, RawIsWhatTheGradientsDtypeWouldHoldWithoutTheScale) {
  GradientProbe probe(params_, DType::f16);
  probe.begin(1024);
  // Unscaled: 2^-10 normal, 2^-15 and 2^-24 subnormal, 2^-27 zero.
  see(probe, GradientStage::scaled,
      in_dtype(from_values<float>({1, 0x1p-5f, 0x1p-14f, 0x1p-17f, 0, 1}), DType::f16));
  const Magnitudes raw = probe.total(ProbeStage::raw), scaled = probe.total(ProbeStage::scaled);
  EXPECT_EQ(raw.zeros, 2);
  EXPECT_EQ(raw.subnormals, 2);
  EXPECT_EQ(raw.by_power[117], 2);
  EXPECT_EQ(scaled.zeros, 1);
  EXPECT_EQ(scaled.subnormals, 1);
  EXPECT_EQ(scaled.by_power[127], 2);
}

TEST_F(Probe, TheWireShowsWhatItsDtypeDestroys) {
  GradientProbe probe(params_, DType::f32);
  probe.begin(1);
  const Tensor gradient = from_values<float>({1e-3f, 1e-9f, 1e-9f, 1e-6f, 0, 1e6f});
  see(probe, GradientStage::scaled, gradient);
  see(probe, GradientStage::wire, in_dtype(gradient, DType::f16));
  EXPECT_EQ(probe.total(ProbeStage::scaled).zeros, 1);
  EXPECT_EQ(probe.total(ProbeStage::wire).dtype, DType::f16);
  EXPECT_EQ(probe.total(ProbeStage::wire).zeros, 3);
  EXPECT_EQ(probe.total(ProbeStage::wire).subnormals, 1);
  EXPECT_EQ(probe.total(ProbeStage::wire).infinities, 1);
  EXPECT_EQ(probe.at(ProbeStage::wire, kB).zeros, 1);
}

TEST_F(Probe, SeesRangesOfTheBufferAndForgetsAtTheNextStep) {
  GradientProbe probe(params_, DType::f32);
  probe.begin(1);
  probe.see(GradientStage::wire, params_.all().range(2, 6), full({4}, 2));
  probe.see(GradientStage::wire, params_.all().range(0, 2), full({2}, 4));
  EXPECT_EQ(probe.at(ProbeStage::wire, kA).by_power[128], 4);
  EXPECT_EQ(probe.at(ProbeStage::wire, kB).by_power[129], 2);
  probe.begin(1);
  EXPECT_EQ(probe.total(ProbeStage::wire).total, 0);
}

TEST(GradientProbe, ComparesWhatIsSentWithTheGradient) {
  Linears model({{"w", 4}});
  optim::FlatParams params(model);
  GradientProbe probe(params, DType::f32);
  EXPECT_EQ(probe.fidelity().all().relative_error, 0);
  const auto show = [&](const Floats& raw, const Floats& sent) {
    probe.begin(1);
    probe.see(GradientStage::scaled, params.all(), from_values(raw));
    probe.see(GradientStage::wire, params.all(), from_values(sent));
    return probe.fidelity().all();
  };
  for (int64_t step = 1; step <= 3; ++step) {
    const Fidelity sent = show({1, 2, 3, 4}, {0, 0, 0, 4});
    EXPECT_DOUBLE_EQ(sent.relative_error, std::sqrt(14.0 / 30));
    EXPECT_DOUBLE_EQ(sent.cosine, 16 / std::sqrt(30.0 * 16));
    EXPECT_EQ(sent.sent_share, 0.25);
    EXPECT_EQ(sent.oldest_unsent, step);
  }
  const Fidelity whole = show({1, 2, 3, 4}, {1, 2, 3, 4});
  EXPECT_EQ(whole.relative_error, 0);
  EXPECT_DOUBLE_EQ(whole.cosine, 1);
  EXPECT_EQ(whole.sent_share, 1);
  EXPECT_EQ(whole.oldest_unsent, 0);
}

TEST(GradientProbe, TellsWhatRanksSentInCommon) {
  Linears model({{"w", 8}});
  optim::FlatParams params(model);
  const auto overlap = [&](const Floats& sent, const Floats& summed) {
    GradientProbe probe(params, DType::f32, 3);
    probe.begin(1);
    probe.see(GradientStage::scaled, params.all(), from_values(Floats(8, 1)));
    probe.see(GradientStage::wire, params.all(), from_values(sent));
    probe.see(GradientStage::reduced, params.all(), from_values(summed));
    EXPECT_EQ(probe.fidelity().by_range().size(), 1u);
    return probe.fidelity().all().overlap(3);
  };
  EXPECT_DOUBLE_EQ(overlap({1, 2, 0, 0, 0, 0, 0, 0}, {3, 6, 0, 0, 0, 0, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(overlap({1, 2, 0, 0, 0, 0, 0, 0}, {1, 2, 1, 2, 1, 2, 0, 0}), 0);
  // Two ranks sent the same two, the third one others: 4 of 6 are different, 2 at least, 6 at most.
  EXPECT_DOUBLE_EQ(overlap({1, 2, 0, 0, 0, 0, 0, 0}, {2, 4, 1, 1, 0, 0, 0, 0}), 0.5);
}

TEST(GradientProbe, ComparesRangesApart) {
  Linears model({{"w", 2}, {"v", 2}});
  optim::FlatParams params(model);
  GradientProbe probe(params, DType::f32);
  probe.begin(1);
  for (const int64_t begin : {0, 2}) {
    const optim::FlatView range = params.all().range(begin, begin + 2);
    probe.see(GradientStage::scaled, range, from_values(Floats{3, 4}));
    probe.see(GradientStage::wire, range, from_values(begin == 0 ? Floats{3, 4} : Floats{0, 4}));
  }
  const std::vector<Fidelity> ranges = probe.fidelity().by_range();
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].relative_error, 0);
  EXPECT_EQ(ranges[1].begin, 2);
  EXPECT_DOUBLE_EQ(ranges[1].relative_error, 0.6);
  EXPECT_DOUBLE_EQ(probe.fidelity().all().relative_error, std::sqrt(9.0 / 50));
}

}  // namespace
}  // namespace lockstep::distributed

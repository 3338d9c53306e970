#include "core/profile.h"

#include "core/kernels/attention.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/matmul.h"
#include "core/kernels/optim_step.h"
#include "tests/support/error_of.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace lockstep {
namespace {

using Kind = Profile::Kind;

// A clock that tests set.
thread_local int64_t ns = 0;
int64_t fake_now() { return ns; }
constexpr Profile::Options kFake{.warm_up = 0, .now = fake_now};

void after(int64_t more) { ns += more; }

Profile::Row row(const Profile& profile, Kind kind, std::string_view name,
                 std::string_view phase = "") {
  for (const Profile::Row& r : profile.rows())
    if (r.kind == kind && r.name == name && r.phase == phase) return r;
  return {};
}

TEST(Profile, SelfTimeIsWithoutWhatIsInside) {
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    after(1);
    const ProfileSpan phase(Kind::phase, "backward");
    after(10);
    for (int i = 0; i < 2; ++i) {
      const ProfileSpan node(Kind::backward, "linear");
      after(100);
      {
        const ProfileSpan kernel(Kind::kernel, "matmul", {.flops = 50});
        after(1000);
      }
      const ProfileSpan kernel(Kind::kernel, "column_sum", {.bytes = 8});
      after(10000);
    }
  }
  EXPECT_EQ(profile.steps(), 1);
  const auto step = row(profile, Kind::step, "step");
  EXPECT_EQ(step.total_ns, 22211);
  EXPECT_EQ(step.self_ns, 1);
  const auto phase = row(profile, Kind::phase, "backward", "backward");
  EXPECT_EQ(phase.total_ns, 22210);
  EXPECT_EQ(phase.self_ns, 10);
  const auto node = row(profile, Kind::backward, "linear", "backward");
  EXPECT_EQ(node.calls, 2);
  EXPECT_EQ(node.total_ns, 22200);
  EXPECT_EQ(node.self_ns, 200);
  const auto matmul = row(profile, Kind::kernel, "matmul", "backward");
  EXPECT_EQ(matmul.calls, 2);
  EXPECT_EQ(matmul.total_ns, 2000);
  EXPECT_EQ(matmul.self_ns, 2000);
  EXPECT_EQ(matmul.cost.flops, 100);
  EXPECT_EQ(row(profile, Kind::kernel, "column_sum", "backward").cost.bytes, 16);
  int64_t self = 0;
  for (const Profile::Row& r : profile.rows()) self += r.self_ns;
  EXPECT_EQ(self, step.total_ns);  // nothing is lost or counted twice
}

TEST(Profile, RowsComeByTheirSelfTime) {
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    for (const auto& [name, time] : {std::pair{"b", 20}, {"c", 10}, {"a", 30}}) {
      const ProfileSpan span(Kind::kernel, name);
      after(time);
    }
  }
  std::string names;
  for (const Profile::Row& r : profile.rows()) names += r.name;
  EXPECT_EQ(names, "abcstep");
}

TEST(Profile, AnOperationHasARowInEachPhase) {
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    ProfilePhases phase;
    for (const char* name : {"forward", "backward", "backward"}) {
      phase.enter(name);
      const ProfileSpan span(Kind::kernel, "matmul");
      after(5);
    }
    phase.leave();
    const ProfileSpan span(Kind::kernel, "matmul");
  }
  EXPECT_EQ(row(profile, Kind::kernel, "matmul", "forward").calls, 1);
  EXPECT_EQ(row(profile, Kind::kernel, "matmul", "backward").calls, 2);
  EXPECT_EQ(row(profile, Kind::kernel, "matmul", "").calls, 1);
  EXPECT_EQ(row(profile, Kind::phase, "backward", "backward").total_ns, 10);
}

TEST(Profile, TheSameNameAtTwoAddressesIsOneRow) {
  const std::array<char, 5> one{"scan"}, two{"scan"};
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    { const ProfileSpan span(Kind::kernel, one.data()); }
    { const ProfileSpan span(Kind::kernel, two.data()); }
  }
  EXPECT_EQ(row(profile, Kind::kernel, "scan").calls, 2);
}

TEST(Profile, WarmUpIsLeftOutAndAFewStepsAreTraced) {
  Profile profile({.warm_up = 2, .traced = 3, .now = fake_now});
  const Profile::Attach attached(&profile);
  for (int i = 0; i < 10; ++i) {
    const ProfileSpan step(Kind::step, "step");
    const ProfileSpan span(Kind::kernel, "matmul", {.flops = 1});
    after(i < 2 ? 1000 : 1);
    EXPECT_EQ(profile.rows().empty(), i <= 2);  // nothing has ended in the third either
  }
  EXPECT_EQ(profile.warm_up(), 2);
  EXPECT_EQ(profile.steps(), 8);
  const auto matmul = row(profile, Kind::kernel, "matmul");
  EXPECT_EQ(matmul.calls, 8);
  EXPECT_EQ(matmul.total_ns, 8);
  EXPECT_EQ(matmul.cost.flops, 8);
  ASSERT_EQ(profile.spans().size(), 6u);
  EXPECT_EQ(profile.spans()[0].name, "matmul");  // ended first
  EXPECT_EQ(profile.spans()[1].name, "step");
  EXPECT_EQ(profile.spans()[1].end_ns - profile.spans()[1].begin_ns, 1);
  EXPECT_EQ(profile.dropped(), 0);
}

TEST(Profile, ARunThatEndsWhileWarmingUpHasNothing) {
  Profile profile({.warm_up = 3});
  const Profile::Attach attached(&profile);
  { const ProfileSpan step(Kind::step, "step"); }
  EXPECT_EQ(profile.warm_up(), 1);
  EXPECT_EQ(profile.steps(), 0);
  EXPECT_TRUE(profile.rows().empty());
  EXPECT_TRUE(profile.spans().empty());
}

TEST(Profile, OutsideOfStepsNothingCounts) {
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan span(Kind::kernel, "outside");
    const ProfileSpan step(Kind::step, "step");
    const ProfileSpan inside(Kind::kernel, "inside");
  }
  profile.transfer("all_reduce", 0, 1, {});
  EXPECT_EQ(profile.rows().size(), 2u);
  EXPECT_EQ(row(profile, Kind::kernel, "inside").calls, 1);
}

TEST(Profile, TransfersRunBesideTheSpans) {
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  ns = 100;
  {
    const ProfileSpan step(Kind::step, "step");
    after(50);
    profile.transfer("all_reduce", 120, 145, {.bytes = 4096});
  }
  const auto transfer = row(profile, Kind::transfer, "all_reduce");
  EXPECT_EQ(transfer.total_ns, 25);
  EXPECT_EQ(transfer.cost.bytes, 4096);
  EXPECT_EQ(row(profile, Kind::step, "step").self_ns, 50);
}

TEST(Profile, ASpanThatAnExceptionEndsIsClosed) {
  Profile profile(kFake);
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    const Tensor x = zeros({2}), y = zeros({3});
    EXPECT_THROW(kernel::copy(y, x), UsageError);
    after(7);
  }
  EXPECT_EQ(row(profile, Kind::kernel, "copy").calls, 1);
  EXPECT_EQ(row(profile, Kind::step, "step").self_ns, 7);
}

TEST(Profile, NothingIsRecordedWithoutOne) {
  Profile profile(kFake);
  EXPECT_FALSE(Profile::any());
  EXPECT_EQ(Profile::here(), nullptr);
  {
    const Profile::Attach attached(&profile);
    EXPECT_EQ(Profile::here(), &profile);
    {
      const Profile::Attach none(nullptr);
      EXPECT_EQ(Profile::here(), nullptr);
      const ProfileSpan step(Kind::step, "step");
    }
    EXPECT_EQ(Profile::here(), &profile);
  }
  EXPECT_FALSE(Profile::any());
  const ProfileSpan step(Kind::step, "step");
  kernel::fill(zeros({3}), 1);
  EXPECT_EQ(profile.steps(), 0);
}

TEST(Profile, EachThreadHasItsOwn) {
  constexpr int kThreads = 4, kSteps = 200;
  const auto profiles = [] {
    std::vector<std::unique_ptr<Profile>> made;
    for (int i = 0; i < kThreads; ++i)
      made.push_back(std::make_unique<Profile>(Profile::Options{.warm_up = 1}));
    return made;
  }();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const Profile::Attach attached(t == 0 ? nullptr : profiles[t].get());
      const Tensor x = zeros({8});
      for (int i = 0; i <= kSteps; ++i) {
        const ProfileSpan step(Kind::step, "step");
        for (int k = 0; k < t; ++k) kernel::fill(x, k);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(profiles[0]->rows().empty());
  for (int t = 1; t < kThreads; ++t) {
    EXPECT_EQ(row(*profiles[t], Kind::kernel, "fill").calls, t * kSteps);
    EXPECT_EQ(profiles[t]->steps(), kSteps);
  }
}

TEST(Profile, KernelsReportTheirNamesAndCosts) {
  const Tensor a = zeros({3, 5}), b = zeros({5, 7}), out = zeros({3, 7}), wide = zeros({2, 3, 7});
  const Tensor qkv = zeros({2, 8, 12}), mixed = zeros({2, 8, 4}), lse = zeros({2, 2, 8});
  const Tensor ids = zeros({4}, DType::i32), rows = zeros({4, 7});
  const auto flat = [] { return zeros({10}); };
  Profile profile({.warm_up = 0});
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    kernel::matmul(out, a, b, {});
    kernel::matmul(out, zeros({5, 3}), b, {.trans_a = true});
    kernel::matmul(wide, zeros({2, 3, 5}), zeros({2, 7, 5}), {.trans_b = true});
    kernel::attention(mixed, lse, qkv, {.heads = 2});
    kernel::attention_backward(zeros({2, 8, 12}), mixed, qkv, mixed, lse, {.heads = 2});
    kernel::copy(out, zeros({3, 7}));
    kernel::embedding(rows, zeros({1000, 7}), ids);
    kernel::adam_step(flat(), flat(), flat(), flat(), {.lr = 1, .factor = 1, .step = 1});
  }
  const auto cost = [&](std::string_view name) { return row(profile, Kind::kernel, name).cost; };
  EXPECT_EQ(row(profile, Kind::kernel, "matmul").calls, 3);
  EXPECT_EQ(cost("matmul").flops, 4 * (2.0 * 3 * 5 * 7));
  // Q·Kᵀ and P·V of 8 × 8 × 4 for each of two samples, half of it masked.
  EXPECT_EQ(cost("attention").flops, 2 * (2 * 2.0 * 8 * 8 * 4) / 2);
  EXPECT_EQ(cost("attention_backward").flops, 2 * cost("attention").flops);
  EXPECT_EQ(cost("copy").bytes, 2 * 21 * 4.0);
  EXPECT_EQ(cost("embedding").bytes, 2 * 28 * 4 + 4 * 4.0);  // not the table
  EXPECT_EQ(cost("adam_step").bytes, 7 * 10 * 4.0);
}

TEST(Profile, WrongNumbersOfStepsAreRefused) {
  EXPECT_EQ(test::error_of([] { Profile({.warm_up = -1}); }),
            "[core.profile] steps; expected at least 0, got -1 to warm up and 5 to trace");
}

}  // namespace
}  // namespace lockstep

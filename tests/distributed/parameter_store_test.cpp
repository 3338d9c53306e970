// What a parameter service does with gradients, in orders chosen by hand and at random. No threads.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numbers>

#include "core/random.h"
#include "store.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

using Rate = ServiceOptions::Rate;
using Share = ServiceOptions::Share;
constexpr int kAtOnce = ServiceOptions::kAtOnce, kEverybody = ServiceOptions::kEverybody;
const optim::OptimizerOptions kSgd{.lr = 1};

// Adagrad (Duchi et al. 2011) with accumulator 1 and eps 0: what case O44 is about needs
// statistics.
class Adagrad final : public optim::Optimizer {
 public:
  Adagrad(const Spec&, optim::FlatView view, const optim::OptimizerOptions& options)
      : Optimizer(std::move(view), options), sum_(full(view_.param.shape(), 1)) {}
  void state(StateIo& io) override {
    Optimizer::state(io);
    io.flat("sum", sum_, Fold::replicated);
  }

 private:
  void update(std::span<const Run> runs, float factor) override {
    float* w = weights().mutable_data<float>();
    float* sum = sum_.mutable_data<float>();
    const float* g = view_.grad.data<float>();
    for (const Run& run : runs)
      for (int64_t i = run.begin; i < run.end; ++i) {
        const float gradient = g[i] * factor;
        sum[i] += gradient * gradient;
        w[i] -= static_cast<float>(options_.lr) * gradient / std::sqrt(sum[i]);
      }
  }
  Tensor sum_;
};
const Register<optim::Optimizer, Adagrad, optim::FlatView, const optim::OptimizerOptions&>
    registered{"test_adagrad", "Adagrad, accumulator 1"};

TEST(KnownFaults, O44_TheSamePushThreeTimesIsOnePush) {
  DirectStore store({}, 2, kSgd);
  EXPECT_EQ(store.push(0, 0, 1).outcome, PushOutcome::accepted);
  EXPECT_EQ(store.push(0, 0, 1).outcome, PushOutcome::duplicate);
  EXPECT_EQ(store.push(1, 0, 10).outcome, PushOutcome::accepted);
  EXPECT_EQ(store.push(0, 0, 1).outcome, PushOutcome::duplicate);
  EXPECT_EQ(store.weight(), -11);
  EXPECT_EQ(store.logic.version(), 2);
  EXPECT_EQ(store.logic.counts().workers[0].duplicate, 2);

  // Still so after a restart.
  MemoryState kept;
  kept.save([&](StateIo& io) { store.logic.state(io); });
  DirectStore again({}, 2, kSgd, 1, "sgd", 5);
  kept.load([&](StateIo& io) { again.logic.state(io); });
  EXPECT_EQ(again.push(0, 0, 1).outcome, PushOutcome::duplicate);
  EXPECT_EQ(again.push(1, 0, 10).outcome, PushOutcome::duplicate);
  EXPECT_EQ(again.weight(), -11);
  EXPECT_EQ(again.push(0, 1, 1).version, 3);
  EXPECT_EQ(again.weight(), -12);
}

TEST(KnownFaults, O44_ARepeatDoesNotFillAQuorum) {
  DirectStore store({.quorum = 2}, 2, kSgd);
  store.push(0, 0, 1);
  EXPECT_EQ(store.push(0, 0, 1).outcome, PushOutcome::duplicate);
  EXPECT_EQ(store.logic.version(), 0);
  EXPECT_EQ(store.weight(), 0);
  EXPECT_FALSE(store.pull(0, 1));
  EXPECT_EQ(store.push(1, 0, 10).version, 1);
  EXPECT_EQ(store.weight(), -5.5);
  EXPECT_EQ(store.pull(0, 1)->version, 1);
  EXPECT_EQ(store.push(0, 0, 1).outcome, PushOutcome::duplicate);  // of a clock that is over
  EXPECT_EQ(store.weight(), -5.5);
}

TEST(KnownFaults, O44_APushOfZerosOrOfNothingIsAPush) {
  DirectStore store({.quorum = 2}, 2, kSgd);
  store.push(0, 0, 0);
  EXPECT_EQ(store.push(1, 0, 10).version, 1);
  EXPECT_EQ(store.weight(), -5);
  EXPECT_EQ(store.push(0, 1, 0, 0).outcome, PushOutcome::empty);
  EXPECT_EQ(store.push(1, 1, 10).version, 2);
  EXPECT_EQ(store.weight(), -15);  // divided by what there is
}

TEST(KnownFaults, O44_AClockBeforeItsTimeIsRefusedWithAnAnswerAndNotLost) {
  for (int quorum : {kAtOnce, 2}) {
    DirectStore store({.quorum = quorum}, 2, kSgd);
    EXPECT_EQ(store.push(0, 1, 100).outcome, PushOutcome::early);
    EXPECT_EQ(store.weight(), 0);
    EXPECT_EQ(store.push(0, 0, 1).outcome, PushOutcome::accepted);
    store.push(1, 0, 1);
    EXPECT_EQ(store.push(0, 1, 100).outcome, PushOutcome::accepted);
    store.push(1, 1, 100);
    EXPECT_EQ(store.weight(), quorum == kAtOnce ? -202 : -101);
  }
}

TEST(KnownFaults, O44_StatisticsAreThoseOfTheGradient) {
  const optim::OptimizerOptions options{.lr = 0.1};
  const auto after = [&](int quorum, double first, double second, double scale) {
    DirectStore store({.quorum = quorum}, 2, options, 1, "test_adagrad");
    store.push(0, 0, first, 1, scale);
    store.push(1, 0, second, 1, scale);
    return store.weight();
  };
  for (double scale : {1.0, 1024.0}) {  // the loss scale leaves no trace
    EXPECT_NEAR(after(kAtOnce, 2, 6, scale), -0.1831470, 2e-7);
    EXPECT_NEAR(after(kAtOnce, 6, 2, scale), -0.1298741, 2e-7);
    EXPECT_NEAR(after(2, 2, 6, scale), -0.0970143, 2e-7);
  }
  DirectStore one({}, 2, options, 1, "test_adagrad");
  one.push(0, 0, 2);
  EXPECT_NEAR(one.weight(), -0.0894427, 1e-7);
}

TEST(KnownFaults, O18_AWorkerThatLeavesHoldsNobodyUp) {
  DirectStore store({.bound = 1}, 2, {.lr = 0.1});
  int64_t a = 0, b = 0;  // iterations made
  for (; a < 2; ++a) {
    store.push(0, a, 1);
    ASSERT_EQ(store.pull(0, a + 1).has_value(), a == 0);  // B has not begun: no more than 1 ahead
  }
  store.push(1, b++, 1);
  ASSERT_TRUE(store.pull(1, b));
  ASSERT_TRUE(store.pull(0, a));
  store.push(0, a++, 1);
  store.leave(0);
  for (; b < 6;) {
    ASSERT_TRUE(store.pull(1, b));
    store.push(1, b++, 1);
  }
  EXPECT_NEAR(store.weight(), -0.9, 1e-6);
  EXPECT_EQ(store.logic.version(), 9);
  EXPECT_EQ(store.logic.counts().max_ahead, 1);
}

TEST(ParameterStore, AQuorumOfThoseWhoAreThere) {
  DirectStore store({.quorum = kEverybody}, 3, kSgd);
  store.push(0, 0, 1);
  store.push(1, 0, 3);
  EXPECT_FALSE(store.pull(0, 1));
  store.leave(2);
  ASSERT_TRUE(store.pull(0, 1));
  EXPECT_EQ(store.weight(), -2);
  // One that has pushed and left counts.
  store.push(1, 1, 3);
  store.leave(1);
  EXPECT_EQ(store.weight(), -2);
  store.push(0, 1, 1);
  EXPECT_EQ(store.weight(), -4);
}

TEST(ParameterStore, BackupWorkersTheFirstKMakeTheStepAndLateOnesAreCounted) {
  DirectStore store({.quorum = 2}, 3, kSgd);
  store.push(2, 0, 8, 1);
  store.push(0, 0, 2, 3);  // weighted: (8·1 + 2·3) / 4
  EXPECT_EQ(store.weight(), -3.5);
  EXPECT_EQ(store.pull(0, 1)->clock, 1);
  store.pull(2, 1);
  store.push(0, 1, 1);
  store.push(2, 1, 1);
  EXPECT_EQ(store.weight(), -4.5);
  // The late one is told so, and goes on with the clock that is open.
  const PushReply late = store.push(1, 0, 100, 5);
  EXPECT_EQ(late.outcome, PushOutcome::late);
  EXPECT_EQ(late.version, 2);
  EXPECT_EQ(store.weight(), -4.5);
  EXPECT_EQ(store.pull(1, 1)->clock, 2);
  EXPECT_EQ(store.push(1, 2, 1).outcome, PushOutcome::accepted);
  EXPECT_EQ(store.logic.counts().workers[1].late, 1);
  EXPECT_EQ(store.logic.counts().workers[1].skipped, 1);
  EXPECT_EQ(store.logic.counts().workers[1].lost_weight, 5);
  EXPECT_EQ(store.push(1, 0, 100, 5).outcome, PushOutcome::duplicate);
}

TEST(ParameterStore, AQuorumOfOneIsOfAClockAndNotAtOnce) {
  DirectStore store({.quorum = 1}, 2, kSgd);
  store.push(0, 0, 1);
  EXPECT_EQ(store.push(1, 0, 1).outcome, PushOutcome::late);
  EXPECT_EQ(store.weight(), -1);
}

TEST(ParameterStore, TheOrderOfArrivalLeavesNoTraceInAQuorum) {
  const std::vector<float> gradients = {1e8f, 1, -1e8f, 1};
  const auto weight = [&](const std::vector<int>& order) {
    DirectStore store({.quorum = kEverybody}, 4, kSgd);
    for (int rank : order) store.push(rank, 0, gradients[rank]);
    return store.weight();
  };
  const double expected = -((1e8f + 1) - 1e8f + 1) / 4;  // from left to right, in f32
  EXPECT_EQ(weight({0, 1, 2, 3}), expected);
  EXPECT_EQ(weight({3, 1, 2, 0}), expected);
  EXPECT_EQ(weight({1, 3, 0, 2}), expected);
}

TEST(ParameterStore, WhatIsNotFiniteIsCountedAndDoesNotStep) {
  for (double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    DirectStore one({}, 2, kSgd);
    EXPECT_EQ(one.push(0, 0, bad).outcome, PushOutcome::not_finite);
    EXPECT_EQ(one.weight(), 0);
    EXPECT_EQ(one.logic.version(), 0);
    EXPECT_EQ(one.push(0, 1, 1).version, 1);

    DirectStore both({.quorum = 2}, 2, kSgd);
    both.push(0, 0, bad);
    EXPECT_EQ(both.push(1, 0, 3).version, 1);  // divided by the one that arrived
    EXPECT_EQ(both.weight(), -3);
    EXPECT_EQ(both.logic.counts().workers[0].not_finite, 1);
    both.push(0, 1, bad);
    EXPECT_EQ(both.push(1, 1, bad).version, 1);
    EXPECT_TRUE(both.pull(0, 2));  // the clock is over all the same
  }
}

TEST(ParameterStore, ScalesOfWorkersMayDiffer) {
  DirectStore store({.quorum = kEverybody}, 3, kSgd);
  store.push(0, 0, 1, 1, 1024);
  store.push(1, 0, 2, 1, 0.5);
  store.push(2, 0, 6, 1, 65536);
  EXPECT_EQ(store.weight(), -3);
}

TEST(ParameterStore, StalenessIsCountedInVersionsWhenApplied) {
  DirectStore store({}, 3, kSgd);
  EXPECT_EQ(store.push(0, 0, 1).staleness, 0);
  EXPECT_EQ(store.push(1, 0, 1).staleness, 1);
  EXPECT_EQ(store.push(2, 0, 1).staleness, 2);
  store.pull(0, 1);
  store.pull(1, 1);
  EXPECT_EQ(store.push(1, 1, 1).staleness, 0);
  EXPECT_EQ(store.push(0, 1, 1).staleness, 1);
  const auto& workers = store.logic.counts().workers;
  EXPECT_EQ(workers[0].staleness[0], 1);
  EXPECT_EQ(workers[0].staleness[1], 1);
  EXPECT_EQ(workers[1].staleness[1], 1);
  EXPECT_EQ(workers[2].staleness[2], 1);
}

TEST(ParameterStore, LearningRateByStaleness) {
  const auto weight = [](Rate rate, Share share) {
    DirectStore store({.rate = rate, .share = share}, 4, kSgd);
    for (int rank = 0; rank < 3; ++rank) store.push(rank, 0, 0);
    store.push(3, 0, 12);  // three versions behind
    return store.weight();
  };
  EXPECT_EQ(weight(Rate::constant, Share::full), -12);
  EXPECT_EQ(weight(Rate::inverse, Share::full), -4);
  EXPECT_NEAR(weight(Rate::sqrt, Share::full), -12 / std::sqrt(3.0), 1e-5);
  EXPECT_EQ(weight(Rate::constant, Share::share), -3);
  EXPECT_EQ(weight(Rate::inverse, Share::share), -1);
  DirectStore fresh({.rate = Rate::inverse}, 1, kSgd);
  fresh.push(0, 0, 12);
  EXPECT_EQ(fresh.weight(), -12);  // not divided by 0
}

TEST(ParameterStore, WhatIsTooOldIsDroppedAndCounted) {
  DirectStore store({.drop_older = 1}, 3, kSgd);
  store.push(0, 0, 1);
  EXPECT_EQ(store.push(1, 0, 1).outcome, PushOutcome::accepted);
  EXPECT_EQ(store.push(2, 0, 1, 7).outcome, PushOutcome::dropped);
  EXPECT_EQ(store.weight(), -2);
  EXPECT_EQ(store.logic.version(), 2);
  EXPECT_EQ(store.logic.counts().workers[2].dropped, 1);
  EXPECT_EQ(store.logic.counts().workers[2].lost_weight, 7);
  EXPECT_EQ(store.pull(2, 1)->version, 2);  // goes on
  EXPECT_EQ(store.push(2, 1, 1).outcome, PushOutcome::accepted);
}

TEST(ParameterStore, CompensationIsThatOfZhengEtAl) {
  // g + λ·g²·(w - w_seen): worker 1 saw 0, the parameter is at -3 by then.
  DirectStore store({.compensate = 0.5}, 2, kSgd);
  store.push(0, 0, 3);
  store.push(1, 0, 2, 4, 256);  // -3 - (2 + 0.5·4·(-3 - 0)) = 1
  EXPECT_EQ(store.weight(), 1);
}

TEST(ParameterStore, APullIsOneVersionAndChangesNothing) {
  DirectStore store({}, 2, kSgd, 100);
  store.push(0, 0, 1);
  EXPECT_EQ(store.pull(0, 1)->version, 1);
  EXPECT_EQ(store.pull(0, 1)->version, 1);
  for (float w : test::floats(store.pulled())) EXPECT_EQ(w, -1);
}

TEST(ParameterStore, MisuseIsRefusedByName) {
  DirectStore store({}, 2, kSgd);
  EXPECT_NE(test::error_of([&] { store.pull(0, 3); }).find("[service.pull] expected a clock of"),
            std::string::npos);
  store.leave(1);
  EXPECT_NE(test::error_of([&] { store.push(1, 0, 1); }).find("worker 1 has left"),
            std::string::npos);
  DirectStore half({.quorum = 2}, 2, kSgd);
  half.push(0, 0, 1);
  MemoryState kept;
  EXPECT_NE(test::error_of([&] {
              kept.save([&](StateIo& io) { half.logic.state(io); });
            }).find("gradients of clock 0 wait for others"),
            std::string::npos);
}

TEST(ParameterStore, ThoseWhoWaitAreToldForWhom) {
  ServiceCall call;
  call.kind = ParameterStore::pull;
  call.clock = 1;
  DirectStore all({.quorum = kEverybody}, 4, kSgd);
  all.push(0, 0, 1);
  all.push(2, 0, 1);
  const ServiceHold hold = all.logic.hold(0, call);
  EXPECT_EQ(hold.what, "the parameters of clock 1: 2 of clock 0's gradients have come");
  EXPECT_EQ(hold.ranks, (std::vector<int>{1, 3}));
  DirectStore bounded({.bound = 0}, 3, kSgd);
  bounded.push(0, 0, 1);
  bounded.push(1, 0, 1);
  EXPECT_EQ(bounded.logic.hold(0, call).what,
            "the parameters of clock 1: the slowest is at clock 0, the bound is 0");
  EXPECT_EQ(bounded.logic.hold(0, call).ranks, (std::vector<int>{2}));
}

// Random schedules. Workers push and pull in any order, leave now and then, repeat themselves.
struct Schedule {
  ServiceOptions options;
  int workers = 0;
  int64_t clocks = 0;  // of each worker
};

class RandomSchedule {
 public:
  RandomSchedule(const Schedule& s, uint64_t seed)
      : s_(s),
        random_(seed, RandomStream::tests),
        store_(s.options, s.workers, {.lr = 0x1p-10}, 3) {
    workers_.resize(static_cast<size_t>(s.workers));
  }

  void run() {
    for (int64_t turn = 0; left() < s_.workers; ++turn) {
      ASSERT_LT(turn, 100'000) << "nobody can go on";
      const int rank = pick(s_.workers);
      Worker& w = workers_[rank];
      if (w.gone) continue;
      if (w.computing && (w.clock >= s_.clocks || pick(40) == 0)) {
        store_.leave(rank);  // which may complete the others' clock
        w.gone = true;
        ASSERT_GE(store_.logic.version(), version_);
        version_ = store_.logic.version();
      } else if (w.computing) {
        push(rank);
      } else {
        pull(rank);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    check_counts();
  }

 private:
  struct Worker {
    int64_t clock = 0, version = 0, pushes = 0, repeats = 0;
    bool computing = true, gone = false;
  };
  int pick(int n) { return static_cast<int>(random_.word(drawn_++) % static_cast<uint32_t>(n)); }
  int left() const { return static_cast<int>(std::ranges::count_if(workers_, &Worker::gone)); }

  void push(int rank) {
    Worker& w = workers_[rank];
    const PushReply reply = store_.push(rank, w.clock, 1);
    ++w.pushes;
    ASSERT_NE(reply.outcome, PushOutcome::duplicate);
    ASSERT_NE(reply.outcome, PushOutcome::early);
    ASSERT_GE(reply.version, version_);  // monotone
    version_ = reply.version;
    while (pick(4) == 0) {
      ++w.repeats;
      ASSERT_EQ(store_.push(rank, w.clock, 1).outcome, PushOutcome::duplicate);
    }
    ++w.clock;
    w.computing = false;
  }
  void pull(int rank) {
    Worker& w = workers_[rank];
    const auto snapshot = store_.pull(rank, w.clock);
    if (!snapshot) return;  // asks again at another turn
    w.computing = true;
    // One that was left behind may leave out what is over.
    if (s_.options.quorum != kAtOnce && s_.options.bound < 0 && pick(2) == 0)
      w.clock = std::max(w.clock, snapshot->clock);
    ASSERT_EQ(snapshot->version, version_);
    ASSERT_GE(snapshot->version, w.version);
    w.version = snapshot->version;
    // Every step moves all elements alike.
    const std::vector<float> got = test::floats(store_.pulled());
    for (float x : got) ASSERT_EQ(x, -0x1p-10 * static_cast<double>(version_));
    if (s_.options.bound < 0) return;
    int64_t slowest = std::numeric_limits<int64_t>::max(), furthest = 0;
    for (const Worker& other : workers_) {
      if (other.gone) continue;
      slowest = std::min(slowest, other.clock);
      if (other.computing) furthest = std::max(furthest, other.clock);
    }
    ASSERT_LE(furthest, slowest + s_.options.bound);
  }
  void check_counts() const {
    int64_t applied = 0;
    for (int rank = 0; rank < s_.workers; ++rank) {
      const WorkerStatistics& c = store_.logic.counts().workers[static_cast<size_t>(rank)];
      EXPECT_EQ(c.accepted + c.late + c.dropped, workers_[rank].pushes);
      EXPECT_EQ(c.duplicate, workers_[rank].repeats);
      EXPECT_EQ(c.lost_weight, static_cast<double>(c.late + c.dropped));
      int64_t binned = 0;
      for (int64_t count : c.staleness) binned += count;
      EXPECT_EQ(binned, c.accepted);
      applied += c.accepted;
    }
    if (s_.options.quorum == kAtOnce) {
      EXPECT_EQ(store_.logic.version(), applied);
    }
    EXPECT_EQ(store_.weight(), -0x1p-10 * static_cast<double>(store_.logic.version()));
  }

  Schedule s_;
  Random random_;
  uint64_t drawn_ = 0;
  DirectStore store_;
  std::vector<Worker> workers_;
  int64_t version_ = 0;
};

TEST(ParameterStore, TenThousandRandomSchedules) {
  constexpr std::array<int64_t, 5> kBounds = {-1, 0, 1, 2, 5};
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    Schedule s{.workers = 1 + static_cast<int>(seed % 6), .clocks = 6};
    s.options.bound = kBounds[seed / 6 % 5];
    switch (seed / 30 % 3) {
      case 0:
        break;
      case 1:
        s.options.quorum = kEverybody;
        break;
      case 2:
        s.options.quorum = 1 + static_cast<int>(seed / 90) % s.workers;
        break;
    }
    if (seed / 540 % 2 == 1) s.options.drop_older = static_cast<int64_t>(seed / 1080 % 4);
    RandomSchedule(s, seed).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", " << s.workers << " workers, bound "
                               << s.options.bound << ", quorum " << s.options.quorum;
  }
}

// x ← x - ηλ·x of τ versions ago is stable exactly for ηλ < 2·sin(π / (2(2τ + 1))) (Levin & May
// 1976): the angle at which the first root of z^(τ+1) = z^τ - ηλ crosses the unit circle.
double threshold(int delay) { return 2 * std::sin(std::numbers::pi / (2 * (2 * delay + 1))); }

// τ + 1 workers that take turns are each τ versions behind. Whether x comes to rest.
bool converges(int delay, double rate, double momentum = 0) {
  const int workers = delay + 1;
  DirectStore store({}, workers, {.lr = rate, .momentum = momentum}, 1, "sgd", 1);
  std::vector<double> seen(static_cast<size_t>(workers), 1);
  double largest = 0;
  const int64_t rounds = 6000 / workers;
  for (int64_t clock = 0; clock < rounds; ++clock)
    for (int rank = 0; rank < workers; ++rank) {
      store.push(rank, clock, seen[rank]);
      store.pull(rank, clock + 1);
      seen[rank] = test::floats(store.pulled())[0];
      if (!(std::abs(seen[rank]) < 1e6)) return false;
      if (clock >= rounds / 2) largest = std::max(largest, std::abs(seen[rank]));
    }
  return largest < 0.5;
}

TEST(ParameterStore, TheLargestStableLearningRateFallsWithTheDelayAsTheorySays) {
  for (int delay : {0, 1, 2, 3, 5, 9, 15}) {
    EXPECT_TRUE(converges(delay, 0.98 * threshold(delay))) << delay;
    EXPECT_FALSE(converges(delay, 1.02 * threshold(delay))) << delay;
  }
}

TEST(ParameterStore, DividingByTheStalenessIsStableWhereAConstantRateIsNot) {
  // Zhang et al. 2016: η/τ. Its product with the delay stays below π/2 for any τ.
  const auto end = [](Rate rate) {
    constexpr int kWorkers = 10;
    DirectStore store({.rate = rate}, kWorkers, {.lr = 1}, 1, "sgd", 1);
    std::array<double, kWorkers> seen;
    seen.fill(1);
    for (int64_t clock = 0; clock < 100; ++clock)
      for (int rank = 0; rank < kWorkers; ++rank) {
        store.push(rank, clock, seen[static_cast<size_t>(rank)]);
        store.pull(rank, clock + 1);
        seen[static_cast<size_t>(rank)] = test::floats(store.pulled())[0];
      }
    return std::abs(seen[0]);
  };
  EXPECT_FALSE(end(Rate::constant) < 1e3);
  EXPECT_LT(end(Rate::inverse), 1e-3);
}

}  // namespace
}  // namespace lockstep::distributed

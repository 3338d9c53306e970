// Averaging with neighbours: what is conserved, where it tends to, when it ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/memory_state.h"
#include "distributed/comm/launch.h"
#include "rank.h"

namespace lockstep::distributed {
namespace {

template <class R>
StepVerdict window(R& rank, float gradient) {
  rank.micro(rank.model.loss(gradient), Sync::now, 1);
  const StepVerdict verdict = rank.finish();
  rank.step(verdict);
  return verdict;
}

void set_weight(Rank<>& rank, float value) {
  rank.params.all().param.mutable_data<float>()[0] = value;
  rank.params.bump_versions();
}

// Gives and takes a strategy's push-sum weight.
struct PushSumWeight final : StateIo {
  explicit PushSumWeight(double written = 0) : v(written) {}
  void flat(const std::string&, Tensor&, Fold) override {}
  void value(const std::string&, int64_t&, Fold) override {}
  void value(const std::string& name, double& value, Fold) override {
    ASSERT_EQ(name, "gossip.v");
    (v == 0 ? v : value) = (v == 0 ? value : v);
  }
  double v;
};
double push_sum_weight(Rank<>& rank) {
  PushSumWeight read;
  rank.strategy->state(read);
  return read.v;
}

// Every rank's weight after every round without gradients, from weights 1, 2, 4 …
std::vector<Floats> rounds_of(const std::string& spec, int ranks, int rounds) {
  std::vector<Floats> seen(static_cast<size_t>(rounds), Floats(static_cast<size_t>(ranks)));
  run_ranks(ranks, [&](Communicator& comm) {
    Rank rank(spec, comm, {}, kPlainSgd);
    set_weight(rank, static_cast<float>(1 << comm.rank()));
    for (int i = 0; i < rounds; ++i) {
      window(rank, 0);
      seen[static_cast<size_t>(i)][static_cast<size_t>(comm.rank())] = rank.model.value();
    }
  });
  return seen;
}

TEST(Gossip, PushSumSendsHalfToOneAheadAtDoublingDistances) {
  EXPECT_EQ(rounds_of("gossip:1", 2, 1).back(), (Floats{1.5f, 1.5f}));
  const auto four = rounds_of("gossip:1", 4, 2);
  EXPECT_EQ(four[0], (Floats{4.5f, 1.5f, 3, 6}));
  EXPECT_EQ(four[1], Floats(4, 3.75f));  // exactly the average, after ⌈log2 n⌉ rounds
  const auto three = rounds_of("gossip:1", 3, 2);
  EXPECT_EQ(three[0], (Floats{2.5f, 1.5f, 3}));
  EXPECT_EQ(three[1], (Floats{2, 2.25f, 2.75f}));  // distance 2: half of r + 1's
}

TEST(Gossip, SymmetricAveragesAreOfBothSides) {
  EXPECT_EQ(rounds_of("gossip:2", 2, 1).back(), (Floats{1.5f, 1.5f}));
  const auto expect_near = [](const Floats& got, const std::vector<double>& expected) {
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
  };
  expect_near(rounds_of("gossip:2", 3, 1).back(), {7 / 3.0, 7 / 3.0, 7 / 3.0});
  const auto four = rounds_of("gossip:2", 4, 2);
  expect_near(four[0], {11 / 3.0, 7 / 3.0, 14 / 3.0, 13 / 3.0});
  expect_near(four[1], {25 / 6.0, 20 / 6.0, 25 / 6.0, 20 / 6.0});  // 2 ahead is 2 behind
  expect_near(rounds_of("gossip:2", 5, 1).back(),
              {19 / 3.0, 7 / 3.0, 14 / 3.0, 28 / 3.0, 25 / 3.0});
}

TEST(Gossip, ConservesTheMassAndTendsToTheAverage) {
  for (const char* spec : {"gossip:1", "gossip:2"})
    for (int ranks : {3, 4, 5}) {
      const double average = ((1 << ranks) - 1) / static_cast<double>(ranks);
      const auto seen = rounds_of(spec, ranks, 60);
      for (const Floats& weights : seen) {
        double sum = 0;
        for (float w : weights) sum += w;
        EXPECT_NEAR(sum, ranks * average, 1e-5 * sum) << spec << " " << ranks;
      }
      for (float w : seen.back()) EXPECT_NEAR(w, average, 1e-5 * average) << spec << " " << ranks;
    }
}

// Push-sum proper: v_r = r + 1, so that the average is weighted, and conserved are Σ v·z and Σ v.
TEST(Gossip, UnequalPushSumWeightsWeighTheAverage) {
  for (int ranks : {3, 4, 5}) {
    std::mutex mutex;
    std::vector<double> mass(40), weight(40), last;
    double begin_mass = 0, begin_weight = 0;
    run_ranks(ranks, [&](Communicator& comm) {
      Rank rank("gossip:1", comm, {}, kPlainSgd);
      const double v = comm.rank() + 1, z = 1 << comm.rank();
      PushSumWeight written(v);
      rank.strategy->state(written);
      set_weight(rank, static_cast<float>(z));
      {
        const std::lock_guard lock(mutex);
        begin_mass += v * z;
        begin_weight += v;
      }
      for (size_t i = 0; i < mass.size(); ++i) {
        window(rank, 0);
        const double w = push_sum_weight(rank);
        const std::lock_guard lock(mutex);
        mass[i] += w * static_cast<double>(rank.model.value());
        weight[i] += w;
        if (i + 1 == mass.size()) last.push_back(rank.model.value());
      }
    });
    for (size_t i = 0; i < mass.size(); ++i) {
      EXPECT_NEAR(mass[i], begin_mass, 1e-5 * begin_mass);
      EXPECT_NEAR(weight[i], begin_weight, 1e-6 * begin_weight);
    }
    for (double z : last)
      EXPECT_NEAR(z, begin_mass / begin_weight, 1e-5 * begin_mass / begin_weight);
  }
}

TEST(Gossip, GradientsMoveTheNumerator) {
  run_ranks(2, [](Communicator& comm) {
    Rank rank("gossip:1", comm, {}, kPlainSgd);
    PushSumWeight written(comm.rank() == 0 ? 0.5 : 1.5);
    rank.strategy->state(written);
    set_weight(rank, 2);
    // x = 1 and 3, gradients 1 and 3: x = 0 and 0. Had they moved z: 0.5·1 + 1.5·(-1), halved.
    window(rank, comm.rank() == 0 ? 1 : 3);
    EXPECT_EQ(rank.model.value(), 0);
    EXPECT_EQ(push_sum_weight(rank), 1);
  });
}

TEST(Gossip, ARankSkipsItsOwnGradientAloneAndAveragesAllTheSame) {
  run_ranks(2, [](Communicator& comm) {
    Rank rank("gossip:1", comm, {}, kPlainSgd);
    const bool skips = comm.rank() == 1;
    const StepVerdict verdict = window(rank, skips ? std::numeric_limits<float>::infinity() : 4);
    EXPECT_EQ(verdict.apply, !skips);
    EXPECT_EQ(rank.model.value(), -2);
    window(rank, 4);
    EXPECT_EQ(rank.model.value(), -6);
  });
}

TEST(Gossip, TrainingEndsForAllTogetherWhenNobodyHadData) {
  for (const char* spec : {"gossip:1", "gossip:2"})
    for (int ranks : {1, 2, 3, 4, 5, 7})
      run_ranks(ranks, {.timeout = std::chrono::seconds(10)}, [&](Communicator& comm) {
        Rank rank(spec, comm, {}, kPlainSgd);
        const int mine = 3 * ((comm.rank() + 1) % ranks) + 1;  // windows with data
        int t = 0;
        for (;; ++t) {
          if (t < mine) rank.micro(rank.model.loss(1), Sync::now, 1);
          const StepVerdict verdict = rank.finish();
          if (rank.reducer.exhausted(verdict)) break;
          EXPECT_EQ(verdict.apply, t < mine);
          rank.step(verdict);
        }
        const int news = std::bit_width(static_cast<unsigned>(ranks - 1));
        EXPECT_EQ(t, 3 * (ranks - 1) + 1 + news) << spec << " " << ranks;
      });
}

TEST(Gossip, TheAverageOverRanksIsEvaluatedAndThenEachHasItsOwnAgain) {
  for (int ranks : {2, 3, 4})
    run_ranks(ranks, [&](Communicator& comm) {
      Rank rank("gossip:1", comm, {}, kPlainSgd);
      for (int t = 1; t <= 3; ++t) {
        window(rank, static_cast<float>(comm.rank()));
        const float before = rank.model.value();
        {
          const auto evaluating = rank.reducer.evaluating(*rank.optimizer);
          // The mean moves by the mean gradient, (n - 1) / 2.
          EXPECT_FLOAT_EQ(rank.model.value(), static_cast<float>(-t * (ranks - 1) / 2.0));
          const Tensor all = Tensor::empty({ranks});
          comm.all_gather_v(all, from_values(std::vector<float>{rank.model.value()}))->wait();
          for (float w : values(all)) EXPECT_EQ(w, rank.model.value());
        }
        EXPECT_EQ(rank.model.value(), before);
      }
    });
}

}  // namespace
}  // namespace lockstep::distributed

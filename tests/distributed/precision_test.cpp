// Loss scales, overflow and narrow wires, through the reducer.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/memory_state.h"
#include "core/random.h"
#include "distributed/comm/launch.h"
#include "rank.h"
#include "tests/support/sanitizer.h"

namespace lockstep::distributed {
namespace {

using optim::GradScaler;
using optim::GradScalerOptions;
using Specs = std::vector<Linears::Spec>;
using Gradients = std::vector<std::pair<int, float>>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kTiny = 4;  // bytes: every parameter is a bucket of its own

ReducerOptions reducer_options(const ExchangeOptions& exchange, int64_t bucket_bytes = kTiny) {
  return {.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes, .exchange = exchange};
}

std::vector<std::string> all_strategies() {
  std::vector<std::string> names;
  for (const auto& entry : Registry<SyncStrategy>::instance().entries())
    names.push_back(entry.name);
  return names;
}

TEST(KnownFaults, O06_ClipAfterAveragingAndUnscalingOnEveryWire) {
  const GradScaler scaler(1024);
  for (const ExchangeOptions& exchange : default_exchanges()) {
    SCOPED_TRACE(describe(exchange));
    run_ranks(2, [&](Communicator& comm) {
      {  // (a)
        Rank<> rank(comm, reducer_options(exchange), kPlainSgd, Specs{{"x"}, {"y"}});
        rank.micro(rank.model.loss(comm.rank() == 0 ? Gradients{{0, 6.0f}} : Gradients{{1, 8.0f}}),
                   Sync::now, 1, scaler);
        StepVerdict verdict = rank.finish(scaler);
        EXPECT_DOUBLE_EQ(rank.reducer.grad_norm(verdict), 5);
        verdict.clip(rank.reducer.grad_norm(verdict), 1);
        rank.step(verdict);
        EXPECT_FLOAT_EQ(rank.model.value(0), -0.6f);
        EXPECT_FLOAT_EQ(rank.model.value(1), -0.8f);
      }
      {  // (b)
        Rank<> rank(comm, reducer_options(exchange), kPlainSgd, Specs{{"x"}, {"y"}});
        rank.micro(rank.model.loss({{0, 3.0f}, {1, 4.0f}}), Sync::now, 1, scaler);
        StepVerdict verdict = rank.finish(scaler);
        EXPECT_EQ(rank.mean_grad(verdict, 0), 3);
        verdict.clip(rank.reducer.grad_norm(verdict), 10);
        rank.step(verdict);
        EXPECT_EQ(rank.model.value(0), -3);
        EXPECT_EQ(rank.model.value(1), -4);
      }
      {  // (c), and (d): the norm needs the last bucket, too. Rank r holds (r + ½) times the mean.
        Rank<> rank(comm, reducer_options(exchange), kPlainSgd, Specs{{"x"}, {"y"}});
        ASSERT_EQ(rank.reducer.buckets().size(), 2u);
        for (int i = 0; i < 20; ++i) {
          const float share = static_cast<float>(comm.rank()) + 0.5f;
          rank.micro(rank.model.loss({{0, 3.0f * share}, {1, 4.0f * share}}), Sync::now, 1, scaler);
          StepVerdict verdict = rank.finish(scaler);
          ASSERT_DOUBLE_EQ(rank.reducer.grad_norm(verdict), 5);
          verdict.clip(rank.reducer.grad_norm(verdict), 1);
          rank.step(verdict);
        }
        EXPECT_NEAR(rank.model.value(0), -12.0f, 1e-5);
        EXPECT_NEAR(rank.model.value(1), -16.0f, 1e-5);
      }
    });
  }
}

TEST(KnownFaults, O08_OverflowSeenByOneRankSkipsTheStepAndHalvesTheScaleOnAll) {
  for (const std::string& spec : all_strategies())
    for (const ExchangeOptions& exchange : default_exchanges())
      for (int64_t bucket_bytes : {kTiny, int64_t{1} << 20}) {  // overlapped, and in one go
        SCOPED_TRACE(spec + " " + describe(exchange));
        run_ranks(2, {.timeout = std::chrono::seconds(30)}, [&](Communicator& comm) {
          Rank<> rank(spec, comm, reducer_options(exchange, bucket_bytes), kPlainSgd,
                      Specs{{"x", 3, 1}, {"y", 5, 1}, {"z", 1, 1}});
          GradScaler scaler(GradScalerOptions{.scale = 65536});
          const bool bad = comm.rank() == 0;
          rank.micro(rank.model.loss({{0, 1e-3f}, {1, bad ? kInf : 1e-3f}, {2, 1e-3f}}), Sync::now,
                     1, scaler);
          const StepVerdict verdict = rank.finish(scaler);
          rank.step(verdict);
          scaler.update(verdict);
          const bool alone = rank.strategy->verdict_scope() != VerdictScope::all_ranks;
          const bool skips = bad || !alone;
          EXPECT_EQ(verdict.apply, !skips);
          EXPECT_EQ(scaler.loss_scale(), skips ? 32768 : 65536);
          if (!skips) return;
          if (!alone) {  // else it may have heard of the others' steps
            EXPECT_EQ(rank.weights(), Floats(9, 1.0f));
          }
          for (float w : rank.weights()) EXPECT_NEAR(w, 1, 2e-3);
          ASSERT_GE(verdict.first_bad, 0);
          EXPECT_EQ(rank.params.slices()[verdict.first_bad].name, "y");
        });
      }
}

TEST(KnownFaults, O08_ScalesThatDifferByRankAreRefusedOnAll) {
  std::vector<std::string> texts(3);
  for (const ExchangeOptions& exchange : default_exchanges()) {
    run_ranks(3, {.timeout = std::chrono::seconds(30)}, [&](Communicator& comm) {
      Rank<> rank(comm, reducer_options(exchange), kPlainSgd);
      const GradScaler scaler(comm.rank() == 1 ? 8 : 2);
      rank.micro(rank.model.loss(comm.rank() == 1 ? 3 : 1), Sync::now, 1, scaler);
      try {
        rank.finish(scaler);
      } catch (const UsageError& e) {
        texts[comm.rank()] = e.what();
      }
    });
    for (std::string& text : texts) {
      EXPECT_NE(text.find("rank 0 has 2, rank 1 has 8, rank 2 has 2"), std::string::npos) << text;
      text.clear();
    }
  }
}

TEST(Reducer, FirstBadIsTheFirstInOrderOfConstructionOverAllRanks) {
  run_ranks(3, [](Communicator& comm) {
    Rank<> rank(comm, reducer_options({}, 100), kPlainSgd,
                Specs{{"a", 9}, {"b", 9}, {"c", 9}, {"d", 9}, {"e", 9}});
    const auto finish = [&](const Gradients& gradients) {
      Gradients all = {{0, 1.0f}, {1, 1.0f}, {2, 1.0f}, {3, 1.0f}, {4, 1.0f}};
      for (const auto& [i, gradient] : gradients) all[static_cast<size_t>(i)].second = gradient;
      rank.micro(rank.model.loss(all), Sync::now, 1);
      const StepVerdict verdict = rank.finish();
      return verdict.first_bad < 0 ? "" : rank.params.slices()[verdict.first_bad].name;
    };
    EXPECT_EQ(finish({}), "");
    EXPECT_EQ(finish(comm.rank() == 0 ? Gradients{{4, kInf}} : Gradients{}), "e");
    EXPECT_EQ(finish(comm.rank() == 0   ? Gradients{{4, kInf}}
                     : comm.rank() == 2 ? Gradients{{1, std::nanf("")}, {3, kInf}}
                                        : Gradients{{2, -kInf}}),
              "b");
    EXPECT_EQ(finish({{0, kInf}, {4, kInf}}), "a");
    EXPECT_EQ(finish({}), "");
  });
}

TEST(Reducer, WhatOverflowsOnTheWireIsNotFiniteOnAllRanks) {
  const ExchangeOptions naive{.wire = DType::f16, .divide = Divide::none};
  for (const std::string& spec : all_strategies())
    run_ranks(2, [&](Communicator& comm) {
      Rank<> rank(spec, comm, reducer_options(naive), kPlainSgd, Specs{{"a"}, {"b", 3}, {"c"}});
      if (!rank.strategy->synchronous()) return;  // tested on their own
      GradScaler scaler(GradScalerOptions{.scale = 1024});
      for (int attempt = 0; attempt < 2; ++attempt) {
        // 40 · 1024 fits, twice that does not; with half the scale it does.
        rank.micro(rank.model.loss({{0, 1.0f}, {1, 40.0f}, {2, 1.0f}}), Sync::now, 1, scaler);
        const StepVerdict verdict = rank.finish(scaler);
        EXPECT_EQ(verdict.apply, attempt == 1);
        EXPECT_EQ(verdict.first_bad, attempt == 1 ? -1 : 1);
        rank.step(verdict);
        scaler.update(verdict);
        EXPECT_EQ(scaler.loss_scale(), 512);
        EXPECT_EQ(rank.model.value(1), attempt == 1 ? -40 : 0);
      }
    });
}

// The mean gradient that a step would use, where all ranks have the same one.
float mean_of_equal(int ranks, const ExchangeOptions& exchange, const optim::Precision& precision,
                    float gradient) {
  Floats got(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Rank<> rank(precision, "allreduce", comm, reducer_options(exchange), kPlainSgd);
    rank.micro(rank.model.loss(gradient), Sync::now, 1);
    const StepVerdict verdict = rank.finish();
    EXPECT_TRUE(verdict.apply);
    got[comm.rank()] = rank.mean_grad(verdict);
  });
  EXPECT_EQ(got, Floats(got.size(), got[0]));
  return got[0];
}

TEST(KnownFaults, O11_AveragesOnAnF16WireThroughTheReducer) {
  const optim::Precision half{
      .params = DType::f16, .grads = DType::f16, .accumulate_in = DType::f16};
  for (int ranks : {2, 3, 4})
    for (const optim::Precision& precision : {optim::Precision{}, half}) {
      const ExchangeOptions f16{.wire = DType::f16};
      const float large = mean_of_equal(ranks, f16, precision, 30000);
      const float small = mean_of_equal(ranks, f16, precision, 0x1p-24f);
      if (ranks == 3) {  // 3/4 of it is rounded to the wire: within half a unit, and not 0
        EXPECT_NEAR(large, 30000, 30000 * 0x1p-11);
        EXPECT_FLOAT_EQ(small, 0x1p-24f * 4 / 3);
      } else {
        EXPECT_EQ(large, 30000);
        EXPECT_EQ(small, 0x1p-24f);
      }
      const ExchangeOptions in_wire{.wire = DType::f16, .reduce_in = ReduceIn::wire};
      EXPECT_NEAR(mean_of_equal(ranks, in_wire, precision, 30000), 30000,
                  ranks == 3 ? 30000 * 0x1p-10 : 0);
    }
}

TEST(Reducer, ParametersAndGradientsMayBeNarrow) {
  for (const optim::Precision& precision : all_precisions())
    for (const ExchangeOptions& exchange : default_exchanges()) {
      SCOPED_TRACE(describe(exchange) + " of " + std::string(name_of(precision.params)));
      run_ranks(3, [&](Communicator& comm) {
        const float start = comm.rank() == 0 ? 1.0f : 5.0f;
        Rank<> rank(precision, "allreduce", comm, reducer_options(exchange), kPlainSgd,
                    Specs{{"a", 2, start}, {"b", 3, start}, {"c", 1, start}});
        EXPECT_EQ(rank.weights(), Floats(6, 1.0f));  // rank 0's
        // c is rank 1's alone, nobody uses b.
        if (comm.rank() == 1)
          rank.micro(rank.model.loss({{0, 4.0f}, {2, 6.0f}}), Sync::now, 1);
        else
          rank.micro(rank.model.loss({{0, 4.0f}}), Sync::now, 1);
        const StepVerdict verdict = rank.finish();
        EXPECT_FLOAT_EQ(rank.mean_grad(verdict, 0), 4);
        EXPECT_FLOAT_EQ(rank.mean_grad(verdict, 2), 2);
        EXPECT_NEAR(rank.reducer.grad_norm(verdict), 6, 1e-5);  // 4, 4, 2
        rank.step(verdict);
        EXPECT_EQ(rank.model.value(0), -3);
        EXPECT_EQ(rank.model.value(1), 1);
        EXPECT_EQ(rank.model.value(2), -1);
        // A gradient that its own dtype cannot hold is found where it lands.
        if (precision.grads != DType::f16) return;
        rank.micro(rank.model.loss({{0, 1.0f}, {1, comm.rank() == 2 ? 1e5f : 1}}), Sync::now, 1);
        const StepVerdict second = rank.finish();
        EXPECT_FALSE(second.apply);
        EXPECT_EQ(rank.params.slices()[second.first_bad].name, "b");
      });
    }
}

TEST(Reducer, TheRunningSumCannotBeReducedWhereSumsAreDivided) {
  run_ranks(2, [](Communicator& comm) {
    ReducerOptions options = reducer_options({.wire = DType::f16});
    options.teach = Teach::reduce_running;
    EXPECT_THROW(Rank<>(comm, options, kPlainSgd), UsageError);
    options.exchange.divide = Divide::none;
    Rank<>(comm, options, kPlainSgd);
  });
}

// Remembers stages and values, range after range.
class Recorder final : public GradientObserver {
 public:
  struct Sight {
    GradientStage stage;
    int64_t offset;
    DType dtype;
    Floats values;
    bool operator==(const Sight&) const = default;
  };
  void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) override {
    sights.push_back({stage, range.offset, values.dtype(), floats(values)});
  }
  std::vector<Sight> of(GradientStage stage) const {
    std::vector<Sight> some;
    for (const Sight& sight : sights)
      if (sight.stage == stage) some.push_back(sight);
    return some;
  }
  std::vector<Sight> sights;
};

TEST(Reducer, ObserversSeeEveryStageOfEveryBucket) {
  using Sights = std::vector<Recorder::Sight>;
  for (const std::string spec : {"allreduce", "naive"})
    run_ranks(2, [&](Communicator& comm) {
      Rank<> rank(spec, comm, reducer_options({.wire = DType::f16}), kPlainSgd,
                  Specs{{"small"}, {"large", 2}});
      Recorder recorder;
      const GradScaler scaler(4);
      const auto window = [&] {
        const float mine = static_cast<float>(comm.rank()) + 1;
        // 2^-29 · 4 is below half of the least f16.
        rank.micro(rank.model.loss({{0, 0x1p-29f}, {1, mine}}), Sync::now, 1, scaler);
        rank.step(rank.finish(scaler));
      };
      window();
      rank.reducer.observe(&recorder);
      window();
      rank.reducer.observe(nullptr);
      window();
      const float mine = 4 * (static_cast<float>(comm.rank()) + 1);
      EXPECT_EQ(recorder.sights.size(), 6u);
      EXPECT_EQ(recorder.of(GradientStage::scaled),
                (Sights{{GradientStage::scaled, 0, DType::f32, {mine, mine}},
                        {GradientStage::scaled, 2, DType::f32, {0x1p-27f}}}));
      EXPECT_EQ(recorder.of(GradientStage::wire),
                (Sights{{GradientStage::wire, 0, DType::f16, {mine, mine}},
                        {GradientStage::wire, 2, DType::f16, {0}}}));
      EXPECT_EQ(recorder.of(GradientStage::reduced),  // 4 + 8, halved
                (Sights{{GradientStage::reduced, 0, DType::f32, {6, 6}},
                        {GradientStage::reduced, 2, DType::f32, {0}}}));
    });
}

// Random infinities: what one rank saw of a run.
struct Attempt {
  bool applied;
  double scale;
  int first_bad;
  Floats master, weights;
  bool operator==(const Attempt&) const = default;
};
using Attempts = std::vector<Attempt>;

// One run of a few steps, all of whose draws come from the seed; every rank knows them all.
Attempts run_with_random_infinities(Communicator& comm, int seed) {
  constexpr int kSteps = 8, kParameters = 3;
  const Random random(77, RandomStream::tests, static_cast<uint32_t>(seed));
  const auto draw = [&](int step, int rank, int what) {
    return random.word(static_cast<uint64_t>((step * 8 + rank) * 8 + what));
  };
  const std::vector<ExchangeOptions> exchanges = default_exchanges();
  ExchangeOptions exchange = exchanges[static_cast<size_t>(seed / 3) % exchanges.size()];
  if (seed % 2 == 0) exchange.divide = Divide::none;
  const optim::Precision precision = all_precisions()[static_cast<size_t>(seed / 15 % 3)];
  Rank<> rank(precision, seed % 4 < 2 ? "allreduce" : "naive", comm, reducer_options(exchange),
              {.lr = 0.01, .momentum = 0.9}, Specs{{"a", 2}, {"b", 1}, {"c", 3}});
  GradScaler scaler(GradScalerOptions{.scale = 1024, .interval = 2, .max = 4096});
  MemoryState before, after;
  const auto save = [&](MemoryState& memory) {
    memory = {};
    memory.save([&](StateIo& io) { rank.optimizer->state(io); });
  };

  Attempts run;
  for (int step = 0; step < kSteps; ++step) {
    // Each rank has a bad gradient in one step of eight. Now and then all have one that is finite
    // but too large for a sum in f16 that is not divided.
    bool bad = false, large = draw(step, 7, 0) % 8 == 0;
    int first = kParameters;  // of the bad ones, in order of construction
    Gradients gradients;
    for (int r = 0; r < comm.size(); ++r) {
      const bool here = draw(step, r, 0) % 8 == 0;
      const auto where = static_cast<int>(draw(step, r, 1) % kParameters);
      if (here) bad = true, first = std::min(first, where);
      if (r != comm.rank()) continue;
      for (int p = 0; p < kParameters; ++p)
        gradients.emplace_back(p, 0.5f + static_cast<float>(draw(step, r, 2 + p) % 1024) / 1024);
      if (large) gradients[1].second = static_cast<float>(60000 / scaler.scale());
      if (here) gradients[static_cast<size_t>(where)].second = where == 1 ? std::nanf("") : -kInf;
    }
    const bool f16_wire = exchange.wire == DType::f16;
    const bool overflows =
        exchange.divide == Divide::none
            ? f16_wire || precision.grads == DType::f16
            // Split: 3 · 60000 / 2 is beyond it, too.
            : f16_wire && exchange.reduce_in == ReduceIn::wire && comm.size() > 2;
    if (large && overflows) bad = true, first = std::min(first, 1);

    const auto master = [&] { return values(rank.optimizer->authority().param); };
    const Floats weights = master();
    save(before);
    rank.micro(rank.model.loss(gradients), Sync::now, 1, scaler);
    const StepVerdict verdict = rank.finish(scaler);
    const double scale = scaler.scale();
    rank.step(verdict);
    scaler.update(verdict);
    save(after);
    const int first_bad = verdict.first_bad < 0 ? kParameters : kParameters - 1 - verdict.first_bad;
    EXPECT_EQ(verdict.apply, !bad) << "step " << step;
    EXPECT_EQ(first_bad, first) << "step " << step;
    EXPECT_EQ(weights == master(), bad);
    EXPECT_EQ(before == after, bad);
    if (bad) {
      EXPECT_EQ(scaler.scale(), scale / 2);
    }
    run.push_back({verdict.apply, scaler.scale(), verdict.first_bad, master(), rank.weights()});
  }
  return run;
}

TEST(Scaler, RanksNeverDisagreeUnderRandomInfinities) {
  constexpr int kSeeds = test::kThreadSanitizer ? 150 : 1000;
  int applied = 0, skipped = 0;
  for (int ranks : {2, 3, 4}) {
    std::vector<std::vector<Attempts>> runs(static_cast<size_t>(ranks));  // by rank
    run_ranks(ranks, [&](Communicator& comm) {
      for (int seed = ranks - 2; seed < kSeeds; seed += 3) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        runs[comm.rank()].push_back(run_with_random_infinities(comm, seed));
      }
    });
    for (const auto& other : runs) ASSERT_TRUE(other == runs[0]);
    for (const Attempts& run : runs[0])
      for (const Attempt& attempt : run) ++(attempt.applied ? applied : skipped);
  }
  EXPECT_EQ(applied + skipped, 8 * kSeeds);
  EXPECT_GT(applied, 3 * kSeeds);
  EXPECT_GT(skipped, 2 * kSeeds);
}

}  // namespace
}  // namespace lockstep::distributed

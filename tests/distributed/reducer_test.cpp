// Windows, weights, verdicts and guards of the reducer.
#include "distributed/reducer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "distributed/comm/launch.h"
#include "distributed/comm/scalars.h"
#include "models.h"
#include "optim/schedule.h"
#include "rank.h"

namespace lockstep::distributed {
namespace {

using autograd::backward;
using optim::FlatParams;
using optim::GradScaler;

// Σ ½(w - y)² over the targets
Tensor half_squares(const Tensor& w, const Floats& y) {
  const Tensor error = ops::subtract(w, from_values(y));
  return ops::scale(ops::sum(ops::unary(error, kernel::Unary::square)), 0.5f);
}

TEST(KnownFaults, O01_TokenWeightedGradientAccumulation) {
  const std::vector<std::vector<Floats>> splits = {
      {{-4, -1, -2, -3}}, {{-4}, {-1, -2, -3}}, {{-1, -2, -3}, {-4}}, {{-4}, {-1}, {-2}, {-3}}};
  for (const auto& micros : splits) {
    run_ranks(1, [&](Communicator& comm) {
      Rank<> rank(comm, {}, kPlainSgd);
      double loss_sum = 0;
      for (size_t i = 0; i < micros.size(); ++i) {
        const Tensor loss = half_squares(rank.model.w[0], micros[i]);
        loss_sum += loss.item();
        rank.micro(loss, i + 1 == micros.size() ? Sync::now : Sync::later,
                   static_cast<double>(micros[i].size()));
      }
      const StepVerdict verdict = rank.finish();
      EXPECT_EQ(verdict.weight, 4);
      EXPECT_FLOAT_EQ(static_cast<float>(loss_sum / verdict.weight), 3.75f);
      EXPECT_FLOAT_EQ(rank.mean_grad(verdict), 2.5f);
    });
  }
  run_ranks(2, [&](Communicator& comm) {  // the two micro-batches on two ranks
    Rank<> rank(comm, {}, kPlainSgd);
    const Floats y = comm.rank() == 0 ? Floats{-4} : Floats{-1, -2, -3};
    rank.micro(half_squares(rank.model.w[0], y), Sync::now, static_cast<double>(y.size()));
    EXPECT_FLOAT_EQ(rank.mean_grad(rank.finish()), 2.5f);
  });
}

// One epoch of linear losses with these gradients, k to a window; the number of steps.
int64_t epoch(Rank<>& rank, const Floats& gradients, size_t k, optim::Schedule schedule = {}) {
  const int64_t before = rank.steps;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const bool last = (i + 1) % k == 0 || i + 1 == gradients.size();
    rank.micro(rank.model.loss(gradients[i]), last ? Sync::now : Sync::later, 1);
    if (!last) continue;
    if (schedule.base > 0) rank.optimizer->set_lr(schedule.at(rank.steps));
    rank.step(rank.finish());
  }
  return rank.steps - before;
}

TEST(KnownFaults, O02_LastShortAccumulationWindow) {
  const Floats g = {1, 2, 3, 4, 5};
  const optim::Schedule constant{.base = 0.1};
  run_ranks(1, [&](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    EXPECT_EQ(epoch(rank, g, 2, constant), 3);
    EXPECT_FLOAT_EQ(rank.model.value(), -1.0f);  // 1.5 + 3.5 + 5
    // Nothing leaks into the next epoch's first window.
    EXPECT_EQ(epoch(rank, g, 2, constant), 3);
    EXPECT_FLOAT_EQ(rank.model.value(), -2.0f);
  });
  run_ranks(1, [&](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    EXPECT_EQ(epoch(rank, g, 8, constant), 1);
    EXPECT_FLOAT_EQ(rank.model.value(), -0.3f);
  });
  // The schedule advances once a step, whatever the number of micro-batches and ranks.
  const optim::Schedule falling{
      .shape = optim::Schedule::Shape::linear, .base = 1, .floor = 0, .total = 10};
  const Floats ones(5, 1.0f);
  double expected = 0;
  for (int64_t t = 0; t < 3; ++t) expected -= falling.at(t);
  for (int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& comm) {
      Rank<> rank(comm, {}, kPlainSgd);
      EXPECT_EQ(epoch(rank, ones, 2, falling), 3);
      EXPECT_FLOAT_EQ(rank.model.value(), static_cast<float>(expected));
    });
}

TEST(KnownFaults, O03_PhaseOfTheWindow) {
  // Gradients are summed over micro-batches and averaged over ranks here: every window weighs 1.
  const auto run = [](Teach teach, double weight, float buffer, float mean) {
    run_ranks(2, [&](Communicator& comm) {
      Rank<> rank(comm, {.teach = teach}, kPlainSgd);
      const Floats g = comm.rank() == 0 ? Floats{2, 6} : Floats{4, 10};
      rank.micro(rank.model.loss(g[0]), Sync::later, weight);
      rank.micro(rank.model.loss(g[1]), Sync::now, weight);
      const StepVerdict verdict = rank.finish();
      EXPECT_EQ(rank.model.grad(), buffer);
      EXPECT_EQ(rank.mean_grad(verdict), mean);
    });
  };
  run(Teach::none, 0.5, 22, 11);
  run(Teach::none, 1, 22, 5.5f);
  // The classic mistakes, on purpose.
  run(Teach::reduce_running, 0.5, 28, 14);  // 6 + 6 on rank 0, 6 + 10 on rank 1, summed
  run(Teach::sum, 1, 22, 11);               // twice the mean over two ranks
  run(Teach::no_division, 1, 22, 11);       // twice the mean over two micro-batches
}

TEST(KnownFaults, O03_OneReductionPerBucketPerWindow) {
  for (int ranks : {1, 2, 3})
    run_ranks(ranks, [](Communicator& comm) {
      const std::vector<Linears::Spec> specs = {{"a", 8}, {"b", 8}, {"c", 8}};
      Rank<> rank(comm, {.bucket_bytes = 32, .first_bucket_bytes = 32}, kPlainSgd, specs);
      ASSERT_EQ(rank.reducer.buckets().size(), 3u);
      for (int window = 0; window < 5; ++window) {
        for (int micro = 0; micro < 4; ++micro)
          rank.micro(rank.model.loss({{0, 1.0f}, {1, 2.0f}, {2, 3.0f}}),
                     micro == 3 ? Sync::now : Sync::later, 1);
        rank.step(rank.finish());
      }
      EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 15);
    });
}

TEST(Reducer, AReductionMayNotHappenTwice) {
  run_ranks(1, [](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    rank.micro(rank.model.loss(1), Sync::now, 1);
    EXPECT_THROW(rank.micro(rank.model.loss(1), Sync::now, 1), UsageError);
    EXPECT_THROW(rank.micro(rank.model.loss(1), Sync::later, 1), UsageError);
    rank.step(rank.finish());
    rank.micro(rank.model.loss(1), Sync::now, 1);  // a new window
  });
  run_ranks(1, [](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    const auto micro = rank.reducer.micro();
    backward(rank.model.loss(1));
    EXPECT_THROW(backward(rank.model.loss(1)), UsageError);
  });
  run_ranks(1, [](Communicator& comm) {  // where it is wanted, it is allowed
    Rank<> rank(comm, {.teach = Teach::reduce_running}, kPlainSgd);
    for (int i = 0; i < 3; ++i) rank.micro(rank.model.loss(1), i < 2 ? Sync::later : Sync::now, 1);
    rank.finish();
    EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 3);
  });
}

TEST(Reducer, GuardsTheOrderOfCalls) {
  run_ranks(1, [](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    EXPECT_THROW(backward(rank.model.loss(1)), UsageError);  // outside micro()
    {
      const auto micro = rank.reducer.micro();
      EXPECT_THROW((void)rank.reducer.micro(), UsageError);
      EXPECT_THROW(rank.finish(), UsageError);
    }
    EXPECT_THROW((void)rank.reducer.micro({.weight = -1}), UsageError);
    EXPECT_THROW((void)rank.reducer.micro({.weight = std::nan("")}), UsageError);
  });
}

TEST(KnownFaults, O04_UnusedParametersCountAsZeroAndOnesNobodyUsedStay) {
  run_ranks(2, [](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}};
    Rank<> rank(comm, {.bucket_bytes = 4, .first_bucket_bytes = 4},
                {.lr = 1, .momentum = 0.9, .weight_decay = 0.1}, specs);
    if (comm.rank() == 0)
      rank.micro(rank.model.loss({{0, 1.0f}, {1, 4.0f}}), Sync::now, 1);
    else
      rank.micro(rank.model.loss({{0, 1.0f}}), Sync::now, 1);
    StepVerdict verdict = rank.finish();
    EXPECT_EQ(rank.mean_grad(verdict, 1), 2);
    rank.step(verdict);
    EXPECT_EQ(rank.model.value(2), 1.0f);            // wrong: 0.9, decayed
    EXPECT_FLOAT_EQ(rank.model.value(1), 1 - 2.1f);  // decay 0.1 · 1
    EXPECT_FLOAT_EQ(rank.model.value(0), 1 - 1.1f);
    // A gradient of an earlier step is not used again: b rests now, momentum included.
    rank.micro(rank.model.loss({{0, 1.0f}}), Sync::now, 1);
    verdict = rank.finish();
    EXPECT_EQ(rank.model.grad(1), 0);
    rank.step(verdict);
    EXPECT_FLOAT_EQ(rank.model.value(1), 1 - 2.1f);
  });
}

TEST(KnownFaults, O04_UnusedParametersAreAnErrorNamingThemIfWanted) {
  std::vector<std::string> texts(2);
  run_ranks(2, {.timeout = std::chrono::seconds(10)}, [&](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"a"}, {"b"}, {"c"}};
    Rank<> rank(comm, {.unused = Unused::error}, kPlainSgd, specs);
    if (comm.rank() == 0)
      rank.micro(rank.model.loss({{0, 1.0f}, {1, 4.0f}}), Sync::now, 1);
    else
      rank.micro(rank.model.loss({{0, 1.0f}}), Sync::now, 1);
    try {
      rank.finish();
    } catch (const UsageError& e) {
      texts[comm.rank()] = e.what();
    }
  });
  for (const std::string& text : texts)
    EXPECT_NE(text.find("c (ranks 0, 1), b (rank 1)"), std::string::npos) << text;
  run_ranks(2, [&](Communicator& comm) {  // a rank without data used nothing, and that is fine
    Rank<> rank(comm, {.unused = Unused::error}, kPlainSgd);
    if (comm.rank() == 0) rank.micro(rank.model.loss(1), Sync::now, 1);
    EXPECT_TRUE(rank.finish().apply);
  });
}

TEST(KnownFaults, O04_DifferentParameterListsAreAnErrorOnAllRanks) {
  using Specs = std::vector<Linears::Spec>;
  const Specs base = {{"a", 2}, {"b", 3}};
  struct Case {
    Specs other;
    ReducerOptions options;
    const char* text;
  };
  const std::vector<Case> cases = {
      {{{"a", 2}, {"b", 3}, {"c", 1}},
       {},
       "line 1: rank 0 has 'b f32 [3]', rank 1 has 'c f32 [1]'"},
      {{{"b", 3}, {"a", 2}}, {}, "line 1: rank 0 has 'b f32 [3]', rank 1 has 'a f32 [2]'"},
      {{{"a", 4}, {"b", 3}}, {}, "line 2: rank 0 has 'a f32 [2]', rank 1 has 'a f32 [4]'"},
      {base, {.bucket_bytes = 77}, "rank 1 has 'bucket bytes 77"},
      {base, {.exchange = {.wire = DType::f16}}, "rank 1 has 'wire f16, reduce in 0"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> texts(3);
    run_ranks(3, {.timeout = std::chrono::seconds(10)}, [&](Communicator& comm) {
      const bool odd = comm.rank() == 1;
      try {
        Rank<> rank(comm, odd ? c.options : ReducerOptions{}, kPlainSgd, odd ? c.other : base);
      } catch (const SystemError& e) {
        EXPECT_EQ(e.site().rank, 1);
        texts[comm.rank()] = e.what();
      }
    });
    for (const std::string& text : texts) EXPECT_NE(text.find(c.text), std::string::npos) << text;
  }
}

TEST(KnownFaults, O04_AReplacedParameterIsRefused) {
  run_ranks(1, [](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    rank.model.w[0] = full({1}, 5);
    autograd::require_grad(rank.model.w[0]);
    EXPECT_THROW(rank.micro(rank.model.loss(1), Sync::now, 1), UsageError);
  });
}

// w of both ranks after training to the end of the data: rank 0 has three batches of gradient 2,
// rank 1 five of gradient 4.
enum class Absent { makes_none, runs_empty_ones };
std::pair<Floats, int64_t> uneven(Uneven policy, Absent absent = Absent::makes_none) {
  Floats w(2);
  int64_t steps = 0;
  run_ranks(2, {.timeout = std::chrono::seconds(10)}, [&](Communicator& comm) {
    Rank<> rank(comm, {.uneven = policy}, kPlainSgd);
    const int batches = comm.rank() == 0 ? 3 : 5;
    for (int i = 0;; ++i) {
      if (i < batches) {
        rank.micro(rank.model.loss(comm.rank() == 0 ? 2 : 4), Sync::now, 1);
      } else if (absent == Absent::runs_empty_ones) {
        const auto open = rank.reducer.micro({.weight = 0, .samples = MicroOptions::Samples::no});
        autograd::backward(rank.model.loss(0));
      }
      const StepVerdict verdict = rank.finish();
      EXPECT_EQ(verdict.active_ranks, i < 3 ? 2 : i < 5 ? 1 : 0);
      if (rank.reducer.exhausted(verdict)) {
        EXPECT_FALSE(verdict.apply);
        break;
      }
      rank.step(verdict);
    }
    w[comm.rank()] = rank.model.value();
    if (comm.rank() == 0) steps = rank.steps;
  });
  return {w, steps};
}

TEST(KnownFaults, O05_DifferentNumberOfBatchesPerRank) {
  EXPECT_EQ(uneven(Uneven::active), std::pair(Floats({-17, -17}), int64_t{5}));   // 3 3 3 4 4
  EXPECT_EQ(uneven(Uneven::initial), std::pair(Floats({-13, -13}), int64_t{5}));  // 3 3 3 2 2
  EXPECT_EQ(uneven(Uneven::stop), std::pair(Floats({-9, -9}), int64_t{3}));
}

// As under SyncBN, where the others wait in forward and backward.
TEST(Reducer, ARankThatRunsEmptyMicroBatchesIsOneWithoutData) {
  for (const Uneven policy : {Uneven::active, Uneven::initial, Uneven::stop})
    EXPECT_EQ(uneven(policy, Absent::runs_empty_ones), uneven(policy));
}

TEST(Reducer, AWindowThatWeighsNothingIsSkipped) {
  run_ranks(2, [](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd);
    rank.micro(rank.model.loss(0), Sync::now, 0);  // all its tokens are ignored
    const StepVerdict verdict = rank.finish();
    EXPECT_FALSE(verdict.apply);
    EXPECT_FALSE(rank.reducer.exhausted(verdict));
    rank.step(verdict);
    EXPECT_EQ(rank.model.value(), 0);
  });
}

TEST(Reducer, NormOfHugeGradientsIsFinite) {
  run_ranks(2, [](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"x", 4}};
    Rank<> rank(comm, {}, kPlainSgd, specs);
    rank.micro(rank.model.loss(1e38f), Sync::now, 1);
    const StepVerdict verdict = rank.finish();
    EXPECT_NEAR(rank.reducer.grad_norm(verdict) / 2e38, 1, 1e-6);
  });
}

TEST(Reducer, OneRanksInfinitySkipsTheStepOnAll) {
  run_ranks(3, [](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"x", 3}, {"y", 3}};
    Rank<> rank(comm, {.bucket_bytes = 4, .first_bucket_bytes = 4}, kPlainSgd, specs);
    const float bad[] = {std::numeric_limits<float>::infinity(), std::nanf("")};
    for (int i = 0; i < 2; ++i) {
      rank.micro(rank.model.loss({{0, 1.0f}, {1, comm.rank() == i ? bad[i] : 1.0f}}), Sync::later,
                 1);
      rank.micro(rank.model.loss({{0, 1.0f}, {1, 1.0f}}), Sync::now, 1);
      const StepVerdict verdict = rank.finish();
      EXPECT_FALSE(verdict.finite);
      EXPECT_FALSE(verdict.apply);
      rank.step(verdict);
      EXPECT_EQ(rank.model.value(0), 0);
    }
    rank.micro(rank.model.loss({{0, 1.0f}, {1, 1.0f}}), Sync::now, 1);  // and on it goes
    rank.step(rank.finish());
    EXPECT_EQ(rank.model.value(1), -1);
  });
}

TEST(Reducer, BucketsCoverTheBufferAtParameterBorders) {
  Linears model({{"a", 10}, {"b", 1}, {"c", 0}, {"d", 100}, {"e", 3}});
  FlatParams params(model);
  const auto buckets = make_buckets(params, 40, 12);
  int slice = 0;
  int64_t end = 0;
  for (const GradientBucket& bucket : buckets) {
    EXPECT_EQ(bucket.first_slice, slice);
    EXPECT_EQ(params.slices()[bucket.first_slice].begin, end);
    EXPECT_EQ(bucket.view.offset, end);
    end = params.slices()[bucket.last_slice - 1].end;
    EXPECT_EQ(bucket.view.numel(), end - bucket.view.offset);
    slice = bucket.last_slice;
  }
  EXPECT_EQ(slice, 5);
  EXPECT_EQ(end, 114);
  ASSERT_EQ(buckets.size(), 3u);  // e | d | c b a
  EXPECT_EQ(buckets[0].bytes(), 12);
  EXPECT_EQ(buckets[1].bytes(), 400);
  EXPECT_EQ(buckets[2].bytes(), 44);
  EXPECT_EQ(ready_shares(buckets), (std::vector<double>{3 / 114.0, 103 / 114.0, 1}));
  EXPECT_EQ(ready_shares(make_buckets(params, 1 << 20, 1 << 20)), std::vector<double>{1});
  EXPECT_THROW(make_buckets(params, 0, 1), UsageError);
}

TEST(Reducer, BucketSizeDoesNotChangeBits) {
  std::vector<Floats> results;
  for (int64_t bytes : {4, 100, 1 << 20})
    run_ranks(3, [&](Communicator& comm) {
      Rank<SmallNet> rank(comm, {.bucket_bytes = bytes, .first_bucket_bytes = bytes}, kPlainSgd,
                          uint64_t{1});
      for (int step = 0; step < 3; ++step) {
        rank.micro(rank.model.loss_sum(3 * step + comm.rank()), Sync::now, 100);
        rank.step(rank.finish());
      }
      if (comm.rank() == 0) results.push_back(values(rank.params.all().param));
    });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Reducer, AllRanksStartWithTheParametersOfRankZero) {
  run_ranks(3, [](Communicator& comm) {
    Rank<SmallNet> rank(comm, {}, kPlainSgd, static_cast<uint64_t>(10 + comm.rank()));
    SmallNet same(10);
    FlatParams expected(same);
    EXPECT_EQ(values(rank.params.all().param), values(expected.all().param));
  });
}

TEST(Reducer, BucketsLeaveDuringBackward) {
  // The last layers' gradients are complete first: when the first layer's lands, all buckets but
  // its own have left.
  run_ranks(1, [](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"a"}, {"b"}, {"c"}};
    Rank<> rank(comm, {.bucket_bytes = 4, .first_bucket_bytes = 4}, kPlainSgd, specs);
    {
      const auto micro = rank.reducer.micro();
      backward(rank.model.loss({{0, 1.0f}, {1, 1.0f}, {2, 1.0f}}));
      EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 3);
    }
    rank.step(rank.finish());
    {
      const auto micro = rank.reducer.micro({.sync = Sync::later});
      backward(rank.model.loss({{0, 1.0f}, {1, 1.0f}, {2, 1.0f}}));
      EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 3);
    }
    rank.finish();
    EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 6);
  });
}

TEST(KnownFaults, O21_MetricsAreMeansOverSamplesOfAllRanks) {
  run_ranks(2, [](Communicator& comm) {
    const Floats losses = comm.rank() == 0 ? Floats{1, 1, 1, 1} : Floats{6};
    double sum = 0;
    for (float loss : losses) sum += loss;
    const double weight = sum_over_ranks(comm, static_cast<double>(losses.size()));
    EXPECT_EQ(sum_over_ranks(comm, sum) / weight, 2.0);  // wrong: 3.5
    EXPECT_EQ(max_over_ranks(comm, losses[0]), 6.0);
    // The gradient likewise: samples with gradients 1, 1, 1, 1 and 6.
    Rank<> rank(comm, {}, kPlainSgd);
    rank.micro(rank.model.loss(static_cast<float>(sum)), Sync::now,
               static_cast<double>(losses.size()));
    const StepVerdict verdict = rank.finish();
    EXPECT_EQ(verdict.weight, 5);
    EXPECT_FLOAT_EQ(rank.mean_grad(verdict), 2);
  });
}

}  // namespace
}  // namespace lockstep::distributed

// PowerSGD: what it sends is a projection, what it does not send is kept, and nothing gets lost.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "autograd/leaf.h"
#include "core/kernels/reduce.h"
#include "core/memory_state.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "rank.h"
#include "tests/support/tensors.h"

namespace lockstep::distributed {
namespace {

using lockstep::testing::near;
using lockstep::testing::randn;

// Parameters of given shapes, all 0, of which the loss is a linear function.
class Matrices final : public layers::Module {
 public:
  explicit Matrices(const std::vector<Shape>& shapes) : w(shapes.size()) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      w[i] = zeros(shapes[i]);
      add_parameter("w" + std::to_string(i), w[i], Decay::no);
    }
  }
  /// Its gradient is as given; one that is undefined is of a parameter that is not used.
  Tensor loss(const std::vector<Tensor>& gradients) const {
    Tensor sum;
    for (size_t i = 0; i < w.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Tensor term = ops::sum(ops::multiply(w[i], gradients[i]));
      sum = sum.defined() ? ops::add(sum, term) : term;
    }
    return sum;
  }
  std::vector<Tensor> w;
};

using MatrixRank = Rank<Matrices>;

Tensor piece(const MatrixRank& rank, const std::string& name) {
  struct Finder final : StateIo {
    void flat(const std::string& n, Tensor& value, Fold) override {
      if (n == wanted) found = value;
    }
    void value(const std::string&, int64_t&, Fold) override {}
    void value(const std::string&, double&, Fold) override {}
    std::string wanted;
    Tensor found;
  } finder;
  finder.wanted = name;
  rank.strategy->state(finder);
  return finder.found;
}
Tensor residual(const MatrixRank& rank) { return piece(rank, "powersgd.residual"); }

// One window with these gradients; the sum that the step used, unscaled.
Floats window(MatrixRank& rank, const std::vector<Tensor>& gradients,
              const optim::GradScaler& scaler = optim::GradScaler()) {
  rank.micro(rank.model.loss(gradients), Sync::now, 1, scaler);
  const StepVerdict verdict = rank.finish(scaler);
  EXPECT_TRUE(verdict.apply);
  Floats sum = floats(rank.params.all().grad);
  for (float& x : sum) x = static_cast<float>(x / verdict.scale);
  rank.step(verdict);
  return sum;
}

// u·vᵀ
Tensor outer(const Tensor& u, const Tensor& v) {
  return ops::matmul(u.reshape({u.numel(), 1}), v.reshape({1, v.numel()}));
}

TEST(PowerSgd, ASumOfThatRankArrivesWhole) {
  // Two ranks, a matrix of rank 1 each: their sum has rank 2.
  run_ranks(2, [](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank rank("powersgd:rank=2", comm, {}, kPlainSgd, std::vector<Shape>{{20, 30}});
    Tensor mine[2];
    for (uint64_t r : {0, 1}) mine[r] = outer(randn({20}, 10 + r), randn({30}, 20 + r));
    const Floats sum = window(rank, {mine[comm.rank()]});
    EXPECT_TRUE(near(from_values(sum, {20, 30}), ops::add(mine[0], mine[1]), 1e-5));
    EXPECT_LT(kernel::sum_of_squares(residual(rank)), 1e-9);
  });
}

TEST(PowerSgd, WhatIsSentIsAProjectionOfWhatWasThere) {
  // One rank: M = sent + residual, at a right angle, and what is sent is not more than M.
  run_ranks(1, [](Communicator& comm) {
    MatrixRank rank("powersgd:rank=3", comm, {}, kPlainSgd, std::vector<Shape>{{40, 50}});
    Tensor had = randn({40, 50}, 1);
    for (uint64_t t = 0; t < 4; ++t) {
      const Floats sent = window(rank, {randn({40, 50}, 1 + t)});
      const Floats kept = floats(residual(rank)), m = values(had);
      double product = 0, squares = 0;
      for (size_t i = 0; i < m.size(); ++i) {
        EXPECT_NEAR(sent[i] + kept[i], m[i], 1e-4);
        product += double{sent[i]} * kept[i];
        squares += double{m[i]} * m[i];
      }
      EXPECT_NEAR(product, 0, 1e-5 * squares);
      had = ops::add(randn({40, 50}, 2 + t), residual(rank).reshape({40, 50}));
    }
  });
}

TEST(PowerSgd, TheFirstStepsByHand) {
  // One rank, rank 1, M = [[3, 0], [0, 4]] twice. The start is the state's: [1, 0].
  run_ranks(1, [](Communicator& comm) {
    MatrixRank rank("powersgd:rank=1,min_ratio=0", comm, {}, kPlainSgd, std::vector<Shape>{{2, 2}});
    float* start = piece(rank, "powersgd.basis").mutable_data<float>();
    start[0] = 0.6f, start[1] = 0.8f;
    const Tensor g = from_values<float>({3, 0, 0, 4}, {2, 2});
    // P = M·Q = [1.8, 3.2]; P̂ = P/√13.48; Q = Mᵀ·P̂ = [5.4, 12.8]/√13.48; P̂·Qᵀ = P·[5.4, 12.8]/13.48
    const Floats sent = window(rank, {g});
    const Floats expected = {9.72f / 13.48f, 23.04f / 13.48f, 17.28f / 13.48f, 40.96f / 13.48f};
    const Floats kept = floats(residual(rank)), basis = floats(piece(rank, "powersgd.basis"));
    const Floats had = {3, 0, 0, 4};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(sent[i], expected[i], 1e-6);
      EXPECT_NEAR(kept[i], had[i] - expected[i], 1e-6);
    }
    EXPECT_NEAR(basis[0], 5.4 / std::hypot(5.4, 12.8), 1e-6);
    EXPECT_NEAR(basis[1], 12.8 / std::hypot(5.4, 12.8), 1e-6);
  });
}

TEST(PowerSgd, ConstantGradientsArriveInTheLongRun) {
  // What is sent on average tends to the gradient, of full rank, since residuals stay bounded.
  run_ranks(1, [](Communicator& comm) {
    MatrixRank rank("powersgd:rank=2", comm, {}, kPlainSgd, std::vector<Shape>{{16, 16}});
    const Tensor g = randn({16, 16}, 5);
    double largest = 0;
    Floats sum(256);
    for (int t = 0; t < 200; ++t) {
      const Floats sent = window(rank, {g});
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += sent[i];
      if (t >= 100) largest = std::max(largest, kernel::sum_of_squares(residual(rank)));
    }
    for (float& x : sum) x /= 200;
    EXPECT_LT(std::sqrt(largest), 20 * std::sqrt(kernel::sum_of_squares(g)));
    EXPECT_TRUE(near(from_values(sum, {16, 16}), g, 0.15));
  });
}

// Promise 5, on any number of ranks: Σ applied + Σ residuals = Σ raw gradients.
void expect_conservation(int ranks, const std::string& spec, const optim::Precision& precision,
                         const ReducerOptions& options, double tolerance) {
  const std::vector<Shape> shapes = {{12, 20}, {20}, {24, 16}, {3, 2, 2, 5}, {}};
  std::vector<double> raw, gone;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank rank(precision, spec, comm, options, kPlainSgd, shapes);
    const auto numel = static_cast<size_t>(rank.params.all().numel());
    std::vector<double> mine(numel), applied(numel);
    for (uint64_t t = 0; t < 8; ++t) {
      const auto gradient_of = [&](uint64_t micro) {
        std::vector<Tensor> gradients;
        for (size_t i = 0; i < shapes.size(); ++i)
          gradients.push_back(in_dtype(
              randn(shapes[i], 1000 * t + 100 * comm.rank() + 10 * micro + i), precision.params));
        return gradients;
      };
      const bool skipped = t == 3 || t == 5;
      for (uint64_t micro = 0; micro < 2; ++micro) {
        std::vector<Tensor> gradients = gradient_of(micro);
        if (!skipped)
          for (size_t i = 0; i < shapes.size(); ++i) {
            const Floats values_of = floats(gradients[i]);
            const auto begin = static_cast<size_t>(
                rank.params.slices()[shapes.size() - 1 - i].begin);  // in reverse order
            for (size_t k = 0; k < values_of.size(); ++k) mine[begin + k] += values_of[k];
          }
        Tensor loss = rank.model.loss(gradients);
        if (skipped && comm.rank() == 0)
          loss = ops::scale(loss, std::numeric_limits<float>::infinity());
        rank.micro(loss, micro == 1 ? Sync::now : Sync::later, 1);
      }
      const StepVerdict verdict = rank.finish();
      EXPECT_EQ(verdict.apply, !skipped);
      if (verdict.apply) {
        const Floats sum = floats(rank.params.all().grad);
        for (size_t i = 0; i < numel; ++i) applied[i] += sum[i] / verdict.scale;
      }
      rank.step(verdict);
    }
    const Floats kept = floats(residual(rank));
    const std::lock_guard lock(mutex);
    raw.resize(numel), gone.resize(numel);
    for (size_t i = 0; i < numel; ++i) {
      raw[i] += mine[i];
      gone[i] += kept[i] + applied[i] / ranks;  // all ranks applied the same
    }
  });
  for (size_t i = 0; i < raw.size(); ++i) EXPECT_NEAR(gone[i], raw[i], tolerance) << i;
}

TEST(PowerSgd, NothingIsLostThroughAccumulationAndSkippedSteps) {
  for (int ranks : {1, 2, 3, 4})
    for (const char* spec : {"powersgd", "powersgd:rank=1,min_ratio=0", "powersgd:warmup=4"})
      for (int64_t bucket : {100, 1500, 1 << 20})
        expect_conservation(ranks, spec, {}, {.bucket_bytes = bucket, .first_bucket_bytes = bucket},
                            5e-5);
}

TEST(PowerSgd, OfNarrowGradientsTheirOwnRoundingIsLostOnly) {
  // Sums of up to 2·4·8 normal numbers, rounded in every step: by 2^-11 (2^-8) of about 10.
  for (DType dtype : {DType::f16, DType::bf16})
    expect_conservation(4, "powersgd", {.params = dtype, .grads = dtype, .accumulate_in = dtype},
                        {}, dtype == DType::f16 ? 0.1 : 0.8);
}

TEST(PowerSgd, VectorsAndSmallMatricesAreSummedAsUnderAllReduce) {
  const std::vector<Shape> shapes = {{30, 30}, {30}, {4, 4}, {1, 900}, {}};
  run_ranks(3, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank low("powersgd", comm, {}, kPlainSgd, shapes);
    MatrixRank all("allreduce", comm, {}, kPlainSgd, shapes);
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < shapes.size(); ++i)
      gradients.push_back(randn(shapes[i], 10 * comm.rank() + i));
    window(low, gradients);
    window(all, gradients);
    for (size_t i = 1; i < shapes.size(); ++i)
      EXPECT_EQ(floats(autograd::grad(low.model.w[i])), floats(autograd::grad(all.model.w[i])));
    EXPECT_NE(floats(autograd::grad(low.model.w[0])), floats(autograd::grad(all.model.w[0])));
  });
}

TEST(PowerSgd, WarmUpIsAllReduceBitForBit) {
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank low("powersgd:warmup=2", comm, {}, kPlainSgd, std::vector<Shape>{{30, 30}});
    MatrixRank all("allreduce", comm, {}, kPlainSgd, std::vector<Shape>{{30, 30}});
    for (uint64_t t = 0; t < 3; ++t) {
      const Tensor gradient = randn({30, 30}, 10 * comm.rank() + t);
      EXPECT_EQ(window(low, {gradient}) == window(all, {gradient}), t < 2);
    }
  });
}

TEST(PowerSgd, AnotherBucketSizeChangesNothing) {
  const std::vector<Shape> shapes = {{20, 16}, {16}, {16, 24}, {24}, {24, 20}};
  run_ranks(3, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    const auto in_buckets_of = [&](int64_t bytes) {
      return std::make_unique<MatrixRank>(
          "powersgd", comm, ReducerOptions{.bucket_bytes = bytes, .first_bucket_bytes = bytes},
          kPlainSgd, shapes);
    };
    const auto small = in_buckets_of(400), large = in_buckets_of(1 << 20);
    const auto step = [&](MatrixRank& rank, uint64_t t) {
      std::vector<Tensor> gradients;
      for (size_t i = 0; i < shapes.size(); ++i)
        gradients.push_back(randn(shapes[i], 100 * t + 10 * comm.rank() + i));
      return window(rank, gradients);
    };
    for (uint64_t t = 0; t < 3; ++t) step(*small, t);
    MemoryState kept;
    kept.save([&](StateIo& io) { small->strategy->state(io); });
    kept.load([&](StateIo& io) { large->strategy->state(io); });
    for (uint64_t t = 3; t < 6; ++t) EXPECT_EQ(step(*small, t), step(*large, t));
  });
}

TEST(PowerSgd, TheLossScaleChangesNothing) {
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    const std::vector<Shape> shapes = {{20, 16}, {16}, {16, 24}};
    MatrixRank plain("powersgd", comm, {}, kPlainSgd, shapes);
    MatrixRank scaled("powersgd", comm, {}, kPlainSgd, shapes);
    for (uint64_t t = 0; t < 6; ++t) {
      std::vector<Tensor> gradients;
      for (size_t i = 0; i < shapes.size(); ++i)
        gradients.push_back(randn(shapes[i], 100 * t + 10 * comm.rank() + i));
      const optim::GradScaler scaler(std::ldexp(1024, static_cast<int>(3 * t)));
      EXPECT_EQ(window(plain, gradients), window(scaled, gradients, scaler));
      EXPECT_EQ(floats(residual(plain)), floats(residual(scaled)));
      EXPECT_EQ(plain.weights(), scaled.weights());
    }
  });
}

TEST(PowerSgd, MicroBatchesOfAnotherScaleThanTheScalersAreRefused) {
  run_ranks(1, [&](Communicator& comm) {
    MatrixRank rank("powersgd", comm, {}, kPlainSgd, std::vector<Shape>{{20, 16}});
    { const auto micro = rank.reducer.micro({.scale = 2}); }
    EXPECT_THROW(rank.finish(optim::GradScaler(4)), UsageError);
  });
}

TEST(PowerSgd, NothingIsSentForWhatNobodyUsed) {
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank rank("powersgd", comm, {}, kPlainSgd, std::vector<Shape>{{20, 20}, {20, 20}});
    const Tensor a = randn({20, 20}, 1), b = randn({20, 20}, 2 + comm.rank());
    window(rank, {a, b});
    // In the buffer, the first parameter comes last.
    const auto kept_of = [&](int64_t i) {
      return floats(residual(rank).slice(400 * (1 - i), 400 * (2 - i)));
    };
    const Floats first = kept_of(0), second = kept_of(1);
    EXPECT_NE(second, Floats(400));
    const Floats sent = window(rank, {a, {}});
    EXPECT_EQ(Floats(sent.begin(), sent.begin() + 400), Floats(400));
    EXPECT_NE(kept_of(0), first);
    EXPECT_EQ(kept_of(1), second);
    // One rank uses it: both send.
    window(rank, {a, comm.rank() == 0 ? b : Tensor()});
    EXPECT_NE(kept_of(1), second);
  });
}

TEST(PowerSgd, ZeroAndLowRankGradientsStallNothing) {
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank rank("powersgd:rank=2", comm, {}, kPlainSgd, std::vector<Shape>{{20, 30}});
    const auto column = [](int64_t c) {  // in one column only
      const Tensor g = zeros({20, 30});
      for (int64_t r = 0; r < 20; ++r) g.mutable_data<float>()[r * 30 + c] = 1 + 0.1f * r;
      return g;
    };
    EXPECT_EQ(window(rank, {zeros({20, 30})}), Floats(600));
    for (int64_t c : {0, 7, 7, 29}) {  // where the factors before were zero
      const Floats sum = window(rank, {column(c)});
      EXPECT_TRUE(near(from_values(sum, {20, 30}), ops::scale(column(c), 2), 1e-5)) << c;
    }
    EXPECT_EQ(window(rank, {zeros({20, 30})}).size(), 600u);
    EXPECT_LT(kernel::sum_of_squares(residual(rank)), 1e-6);
  });
}

TEST(PowerSgd, HugeAndTinyGradientsArrive) {
  for (float size : {1e-30f, 1e30f})
    run_ranks(2, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      MatrixRank rank("powersgd", comm, {}, kPlainSgd, std::vector<Shape>{{20, 30}});
      const Tensor g = ops::scale(outer(randn({20}, 1), randn({30}, 2)), size);
      for (int t = 0; t < 3; ++t)
        EXPECT_TRUE(near(from_values(window(rank, {g}), {20, 30}), ops::scale(g, 2), 1e-5));
    });
}

TEST(PowerSgd, AnOverflowOfFactorsIsSkippedOnAllRanksWithoutATrace) {
  run_ranks(3, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank rank("powersgd", comm, {}, kPlainSgd, std::vector<Shape>{{20, 30}});
    window(rank, {randn({20, 30}, comm.rank())});
    MemoryState before, after;
    before.save([&](StateIo& io) { rank.strategy->state(io); });
    const Floats weights = rank.weights();
    // Finite on every rank; the sums are not.
    rank.micro(rank.model.loss({full({20, 30}, 3e38)}), Sync::now, 1);
    const StepVerdict verdict = rank.finish();
    EXPECT_FALSE(verdict.apply);
    EXPECT_FALSE(verdict.finite);
    rank.step(verdict);
    after.save([&](StateIo& io) { rank.strategy->state(io); });
    EXPECT_TRUE(before == after);
    EXPECT_EQ(rank.weights(), weights);
    window(rank, {randn({20, 30}, 10 + comm.rank())});
  });
}

TEST(PowerSgd, TwoCallsABucketMoveTheFactors) {
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    MatrixRank rank("powersgd:rank=3", comm, {.bucket_bytes = 5000, .first_bucket_bytes = 5000},
                    kPlainSgd, std::vector<Shape>{{50, 70}, {70}, {50, 40}});
    EXPECT_EQ(rank.reducer.buckets().size(), 2u);
    comm.reset_stats();
    window(rank, {randn({50, 70}, 1), randn({70}, 2), randn({50, 40}, 3)});
    EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 4);
    // r·(rows + columns) of each matrix and the vector, in f32; 2·(n-1)/n is 1.
    const double bytes = 4.0 * (3 * (50 + 70) + 3 * (50 + 40) + 70);
    EXPECT_EQ(comm.stats()[Verb::all_reduce].wire_bytes, bytes);
    EXPECT_EQ(rank.strategy->bytes_per_step(), bytes);

    StrategyReport report;
    rank.strategy->report(report);
    ASSERT_EQ(report.numbers.size(), 2u);
    EXPECT_EQ(report.numbers[0].name, "compression");
    EXPECT_DOUBLE_EQ(report.numbers[0].value, 4.0 * (50 * 70 + 70 + 50 * 40) / bytes);
    EXPECT_EQ(report.numbers[1].name, "residual_norm");
    EXPECT_DOUBLE_EQ(report.numbers[1].value, std::sqrt(kernel::sum_of_squares(residual(rank))));
  });
}

TEST(PowerSgd, PlainSgdGetsWhereAllReduceGets) {
  const auto loss_after = [](const std::string& spec) {
    double loss = 0;
    run_ranks(2, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      Rank<SmallNet> rank(spec, comm, {}, {.lr = 0.05, .weight_decay = 0}, 1);
      for (int64_t s = 0; s < 600; ++s) {
        rank.micro(rank.model.loss_sum((2 * s + comm.rank()) % 8), Sync::now, 4);
        rank.step(rank.finish());
      }
      double sum = 0;
      for (int64_t batch = 0; batch < 8; ++batch) sum += rank.model.loss_sum(batch).item() / 32;
      if (comm.rank() == 0) loss = sum;
    });
    return loss;
  };
  const double dense = loss_after("allreduce");
  for (const char* spec : {"powersgd:rank=1", "powersgd:rank=2", "powersgd:rank=4,min_ratio=0"})
    EXPECT_LT(loss_after(spec), dense + 0.03) << spec << " against " << dense;
}

}  // namespace
}  // namespace lockstep::distributed

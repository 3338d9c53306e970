// 1-bit Adam: Adam until the variance is frozen; from then on what ranks exchange is the momentum.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/leaf.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/strategies/moment_finder.h"
#include "models.h"
#include "optim/optimizer.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace lockstep::distributed {
namespace {

using lockstep::testing::randn;
using test::error_of;

constexpr int64_t kLength = 12;

// One parameter of which the loss is a linear function.
class Line final : public layers::Module {
 public:
  Line() : w(full({kLength}, 0.5)) { add_parameter("w", w, Decay::yes); }
  Tensor loss(const Tensor& gradient) const { return ops::sum(ops::multiply(w, gradient)); }
  Tensor w;
};

struct Trainer {
  Trainer(Communicator& c, const std::string& spec, const std::string& optimizer_spec,
          const optim::OptimizerOptions& options)
      : comm(c),
        params(model),
        strategy(make_strategy(spec)),
        reducer(params, c, *strategy),
        optimizer(optim::make_optimizer(optimizer_spec, params.all(), options)) {
    reducer.start(*optimizer);
  }
  // A window with this gradient of a sum over `weight` samples.
  StepVerdict step(const Tensor& gradient, double weight = 1, double max_norm = 0,
                   const optim::GradScaler& scaler = optim::GradScaler()) {
    {
      const auto micro = reducer.micro({.weight = weight, .scale = scaler.scale()});
      autograd::backward(scaler.scale(model.loss(gradient)));
    }
    StepVerdict verdict = reducer.finish_backward(scaler);
    if (max_norm > 0) verdict.clip(reducer.grad_norm(verdict), max_norm);
    const StepVerdict made = reducer.step(*optimizer, verdict);
    reducer.finish_step(steps++);
    return made;
  }
  Floats weights() const { return floats(params.all().param); }
  Floats moment(const char* name) const {
    return floats(MomentFinder(*optimizer).moments.at(name));
  }

  Communicator& comm;
  Line model;
  optim::FlatParams params;
  std::unique_ptr<SyncStrategy> strategy;
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
  int64_t steps = 0;
};

Tensor gradient_of(int64_t step, int rank) {
  return randn({kLength}, static_cast<uint64_t>(100 * step + rank));
}

// Adam in double whose variance stays as it is after `warmup` updates.
struct Frozen {
  double lr, beta1, beta2, eps, decay, floor;
  bool decoupled;
  int64_t warmup;
  std::vector<double> w = std::vector<double>(kLength, 0.5), m = std::vector<double>(kLength),
                      v = std::vector<double>(kLength);
  int64_t t = 0;
  void step(const std::vector<double>& gradient) {
    ++t;
    double mean = 0;
    for (double x : v) mean += x / kLength;
    const double least = t > warmup ? floor * floor * mean : 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + (decoupled ? 0 : decay * w[i]);
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      if (t <= warmup) v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double frozen = static_cast<double>(std::min(t, warmup));
      const double m_hat = m[i] / (1 - std::pow(beta1, t)),
                   v_hat = std::max(v[i], least) / (1 - std::pow(beta2, frozen));
      if (decoupled) w[i] *= 1 - lr * decay;
      if (v_hat > 0) w[i] -= lr * m_hat / (std::sqrt(v_hat) + eps);
    }
  }
};

TEST(OneBitAdam, WithoutACodeItIsAdamWithAFrozenVariance) {
  for (const bool decoupled : {false, true})
    for (int ranks : {1, 2, 4})
      run_ranks(ranks, [&](Communicator& comm) {
        const ThreadBudget budget(1);
        const optim::OptimizerOptions options{
            .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3};
        Trainer trainer(comm, "onebit_adam:warmup=5,floor=0.8,code=none",
                        decoupled ? "adamw" : "adam", options);
        Frozen expected{.lr = options.lr,
                        .beta1 = options.beta1,
                        .beta2 = options.beta2,
                        .eps = options.eps,
                        .decay = options.weight_decay,
                        .floor = 0.8,
                        .decoupled = decoupled,
                        .warmup = 5};
        for (int64_t s = 0; s < 20; ++s) {
          // Rank r has r + 1 samples; the mean is over all.
          std::vector<double> mean(kLength);
          double weight = 0;
          for (int r = 0; r < ranks; ++r) {
            const Floats g = values(gradient_of(s, r));
            for (size_t i = 0; i < mean.size(); ++i) mean[i] += g[i];
            weight += r + 1;
          }
          for (double& g : mean) g /= weight;
          trainer.step(gradient_of(s, comm.rank()), comm.rank() + 1);
          expected.step(mean);
          const Floats w = trainer.weights();
          for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(w[i], expected.w[i], 1e-5) << s;
        }
      });
}

TEST(OneBitAdam, TheWarmUpIsAdamBitForBit) {
  run_ranks(3, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    Trainer one(comm, "onebit_adam:warmup=4", "adamw", {.lr = 0.1, .weight_decay = 0.1});
    Trainer plain(comm, "allreduce", "adamw", {.lr = 0.1, .weight_decay = 0.1});
    for (int64_t s = 0; s < 5; ++s) {
      for (Trainer* trainer : {&one, &plain}) trainer->step(gradient_of(s, comm.rank()), 1, 0.5);
      EXPECT_EQ(one.weights() == plain.weights(), s < 4) << s;
      EXPECT_EQ(one.moment("v") == plain.moment("v"), s < 4) << s;
    }
  });
}

TEST(OneBitAdam, WithoutAFloorElementsThatNoGradientHasReachedStandStill) {
  for (const char* spec :
       {"onebit_adam:warmup=2,floor=0", "onebit_adam:warmup=2,floor=0,code=none"})
    run_ranks(2, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      Trainer trainer(comm, spec, "adam", {.lr = 0.1});
      const auto step = [&](int64_t s, bool all) {
        const Tensor g = gradient_of(s, comm.rank());
        if (!all)
          for (int64_t i = 0; i < 4; ++i) g.mutable_data<float>()[i] = 0;
        trainer.step(g);
      };
      for (int64_t s = 0; s < 6; ++s) step(s, s >= 3);
      const Floats w = trainer.weights();
      for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(w[i] == 0.5f, i < 4) << i;
    });
}

TEST(OneBitAdam, ClipsByTheSumOfNormsWhichIsNeverLess) {
  // code=none, β1 = 0: the momentum is the clipped mean gradient.
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    Trainer trainer(comm, "onebit_adam:warmup=1,code=none", "adam", {.lr = 0.1, .beta1 = 0});
    Tensor g = zeros({kLength});
    g.mutable_data<float>()[comm.rank()] = comm.rank() == 0 ? 6 : 8;
    trainer.step(g, 0.5, 100);
    EXPECT_NEAR(trainer.moment("m")[0], 6, 1e-6);  // weights add up to 1
    trainer.step(g, 0.5, 100);
    EXPECT_NEAR(trainer.moment("m")[0], 6, 1e-6);
    trainer.step(g, 0.5, 7);  // of 6 + 8
    EXPECT_NEAR(trainer.moment("m")[0], 3, 1e-6);
    EXPECT_NEAR(trainer.moment("m")[1], 4, 1e-6);
  });
}

// Promise 5 of momenta: Σ m + Σ residuals = Σ over steps of what the ranks had to send.
TEST(OneBitAdam, WhatABitLosesIsSentLater) {
  for (int ranks : {1, 2, 3, 4}) {
    std::vector<double> residuals(kLength);
    std::vector<double> sent(kLength), wanted(kLength);
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      Trainer trainer(comm, "onebit_adam:warmup=2", "adam", {.lr = 1e-3});
      std::vector<double> all_sent(kLength), all_wanted(kLength);
      Floats before;
      for (int64_t s = 0; s < 30; ++s) {
        const bool bad = s == 10 || s == 11;
        Tensor g = gradient_of(s, comm.rank());
        if (bad && comm.rank() == 0) g = full({kLength}, std::nan(""));
        EXPECT_EQ(trainer.step(g).apply, !bad);
        const Floats m = trainer.moment("m");
        for (size_t i = 0; i < m.size() && s >= 2 && !bad; ++i) {
          double mean = 0;
          for (int r = 0; r < ranks; ++r) mean += values(gradient_of(s, r))[i] / ranks;
          all_wanted[i] += 0.9 * before[i] + 0.1 * mean;
          all_sent[i] += m[i];
        }
        before = m;
      }
      struct Residuals final : StateIo {
        explicit Residuals(std::vector<double>& s) : sums(s) {}
        void flat(const std::string&, Tensor& value, Fold fold) override {
          EXPECT_EQ(fold, Fold::sum_over_ranks);
          ++pieces;
          for (size_t i = 0; i < sums.size(); ++i) sums[i] += floats(value)[i];
        }
        void value(const std::string&, int64_t&, Fold) override {}
        void value(const std::string&, double&, Fold) override {}
        std::vector<double>& sums;
        int pieces = 0;
      };
      const std::lock_guard lock(mutex);
      Residuals walk(residuals);
      trainer.strategy->state(walk);
      EXPECT_GE(walk.pieces, 1);
      sent = all_sent, wanted = all_wanted;
    });
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_NEAR(sent[i] + residuals[i], wanted[i], 1e-4) << ranks << " " << i;
      EXPECT_GT(std::abs(residuals[i]), 1e-4);
    }
  }
}

TEST(OneBitAdam, TheLossScaleChangesNothing) {
  run_ranks(2, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    Trainer plain(comm, "onebit_adam:warmup=2", "adamw", {.lr = 0.1});
    Trainer scaled(comm, "onebit_adam:warmup=2", "adamw", {.lr = 0.1});
    for (int64_t s = 0; s < 8; ++s) {
      plain.step(gradient_of(s, comm.rank()));
      scaled.step(gradient_of(s, comm.rank()), 1, 0,
                  optim::GradScaler(std::ldexp(1024, static_cast<int>(s))));
      EXPECT_EQ(plain.weights(), scaled.weights());
    }
  });
}

TEST(OneBitAdam, MovesABitOfEachElementInAndOut) {
  run_ranks(4, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    SmallNet net(1);
    optim::FlatParams params(net);
    const auto strategy = make_strategy("onebit_adam:warmup=1");
    Reducer reducer(params, comm, *strategy);
    const auto optimizer = optim::make_optimizer("adam", params.all(), {.lr = 1e-3});
    for (int64_t s = 0; s < 3; ++s) {
      comm.reset_stats();
      {
        const auto micro = reducer.micro({.weight = 4});
        autograd::backward(net.loss_sum(4 * s + comm.rank()));
      }
      const StepVerdict verdict = reducer.finish_backward(optim::GradScaler());
      const CommStats before = comm.stats();
      reducer.step(*optimizer, verdict);
      reducer.finish_step(s);
      const double moved = comm.stats().total().wire_bytes - before.total().wire_bytes;
      if (s == 0) {
        EXPECT_EQ(moved, 0);
      } else {
        const auto bits = static_cast<double>(params.all().numel());
        EXPECT_GE(moved, 2 * 3 / 4.0 * bits / 8);
        EXPECT_LE(moved, 2 * 3 / 4.0 * bits / 8 + 2000);  // scales and frames
      }
    }
  });
}

TEST(OneBitAdam, GetsWhereAdamGets) {
  const auto loss_after = [](const std::string& spec) {
    double loss = 0;
    run_ranks(2, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      SmallNet net(1);
      optim::FlatParams params(net);
      const auto strategy = make_strategy(spec);
      Reducer reducer(params, comm, *strategy);
      const auto optimizer = optim::make_optimizer("adam", params.all(), {.lr = 2e-3});
      for (int64_t s = 0; s < 600; ++s) {
        {
          const auto micro = reducer.micro({.weight = 4});
          autograd::backward(net.loss_sum((2 * s + comm.rank()) % 8));
        }
        reducer.step(*optimizer, reducer.finish_backward(optim::GradScaler()));
        reducer.finish_step(s);
      }
      double sum = 0;
      for (int64_t batch = 0; batch < 8; ++batch) sum += net.loss_sum(batch).item() / 32;
      if (comm.rank() == 0) loss = sum;
    });
    return loss;
  };
  const double adam = loss_after("allreduce"), one_bit = loss_after("onebit_adam:warmup=100");
  EXPECT_LT(one_bit, adam + 0.03) << "against " << adam;
}

TEST(OneBitAdam, OtherOptimisersAreRefused) {
  run_ranks(1, [&](Communicator& comm) {
    const std::string error =
        error_of<UsageError>([&] { Trainer trainer(comm, "onebit_adam", "sgd", {}); });
    EXPECT_NE(error.find("expected adam or adamw, got sgd"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace lockstep::distributed

#include "apps/bench/measure.h"
#include "apps/bench/step_calls.h"
#include "apps/vision/residual_net.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/kernels/elementwise.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/reducer.h"

#include <fmt/format.h>

// A training step of the residual net, with everything that `train vision` has in one.
namespace lockstep::apps {
namespace {

using distributed::Communicator;

constexpr int64_t kBatch = 64, kSize = 32;

class Rank {
 public:
  Rank(const BenchOptions& options, Communicator& comm)
      : precision_(options.precision),
        autocast_(precision_.compute_dtype()),
        reducer_(params_, comm, *strategy_, {.exchange = precision_.exchange()}) {
    const Random random(1, RandomStream::tests, 1);
    for (int64_t i = 0; i < images_.numel(); ++i)
      images_.mutable_data<float>()[i] =
          static_cast<float>(2 * random.uniform53(static_cast<uint64_t>(i)) - 1);
    for (int64_t i = 0; i < kBatch; ++i)
      labels_.mutable_data<int32_t>()[i] = static_cast<int32_t>(i % config_.classes);
  }

  void train() {
    if (steps_ == kWarmUp) at_warm_ = StepCalls::now();
    {
      const auto window = reducer_.micro({.weight = kBatch});
      autograd::backward(scaler_.scale(net_.loss_sum(images_, labels_)));
    }
    const optim::StepVerdict verdict = reducer_.finish_backward(scaler_);
    reducer_.step(*optimizer_, verdict);
    scaler_.update(verdict);
    reducer_.finish_step(steps_++);
  }

  Measurement measured(double ms) const {
    nlohmann::ordered_json figures{{"samples_per_s", 1e3 * kBatch / ms},
                                   {"gflops", product_flops(config_, kSize, kBatch) / ms * 1e-6}};
    add_memory(figures, at_warm_, steps_ - kWarmUp);
    return {fmt::format("vision residual net {} x {} batch {} {}", config_.width, config_.blocks,
                        kBatch, precision_.precision),
            ms, std::move(figures)};
  }

 private:
  const PrecisionOptions& precision_;
  const ResidualNetConfig config_;
  ResidualNet net_{config_, 1};
  autograd::Autocast autocast_;
  optim::FlatParams params_{net_, precision_.buffers()};
  std::unique_ptr<distributed::SyncStrategy> strategy_ = distributed::make_strategy("allreduce");
  distributed::Reducer reducer_;
  std::unique_ptr<optim::Optimizer> optimizer_ =
      optim::make_optimizer("adamw", params_.all(), {.lr = 3e-4, .weight_decay = 0.01});
  optim::GradScaler scaler_{precision_.scaler(kBatch)};
  Tensor images_ = Tensor::empty({kBatch, config_.channels, kSize, kSize}),
         labels_ = Tensor::empty({kBatch}, DType::i32);
  int64_t steps_ = 0;
  StepCalls at_warm_;
};

}  // namespace

Measurements bench_vision(const BenchOptions& options) {
  Measurements out;
  distributed::run_ranks(1, {.backend = "solo"}, [&](Communicator& comm) {
    const ThreadBudget budget(static_cast<int>(options.threads));
    Rank rank(options, comm);
    const double ms = median_ms(options.repeats, [&] { rank.train(); });
    out.push_back(rank.measured(ms));
  });
  return out;
}

}  // namespace lockstep::apps

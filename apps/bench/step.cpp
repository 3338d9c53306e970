#include "apps/bench/measure.h"
#include "apps/bench/presets.h"
#include "apps/bench/step_calls.h"
#include "apps/training/probe_report.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/reducer.h"

#include <fmt/format.h>

#include <barrier>
#include <functional>
#include <thread>

namespace lockstep::apps {
namespace {

using distributed::Communicator;

Tensor random_ids(const Shape& shape, int64_t vocab, uint32_t key) {
  const Tensor ids = Tensor::empty(shape, DType::i32);
  const Random random(1, RandomStream::tests, key);
  int32_t* data = ids.mutable_data<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i)
    data[i] =
        static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), static_cast<uint64_t>(i)));
  return ids;
}

// One rank with its model, everything that `train transformer` has in a step, and random tokens.
class Rank {
 public:
  Rank(const BenchOptions& options, Communicator& comm)
      : preset_(preset(options.preset)),
        precision_(options.precision),
        autocast_(precision_.compute_dtype()),
        reducer_(params_, comm, *strategy_, {.exchange = precision_.exchange()}) {}

  void train() {
    if (steps_ == kWarmUp) at_warm_ = StepCalls::now();
    {
      const auto window = reducer_.micro({.weight = tokens()});
      autograd::backward(scaler_.scale(model_.loss_sum(ids_, targets_)));
    }
    const optim::StepVerdict verdict = reducer_.finish_backward(scaler_);
    reducer_.step(*optimizer_, verdict);
    scaler_.update(verdict);
    reducer_.finish_step(steps_++);
  }

  // What a probe adds to a step, its line of metrics.jsonl included.
  void train_probed(distributed::GradientProbe& probe) {
    probe.begin(scaler_.loss_scale());
    train();
    probe_json(probe, params_).dump();
  }
  distributed::GradientProbe make_probe() { return {params_, precision_.buffers().grads}; }
  void observe(distributed::GradientProbe* probe) { reducer_.observe(probe); }

  double tokens() const { return static_cast<double>(ids_.numel()); }

  // `ranks` like this one took `ms` for a step.
  Measurement measured(const char* what, double ms, int ranks) const {
    const double flops = ranks * product_flops(preset_.config, ids_.numel());
    nlohmann::ordered_json figures{{"tokens_per_s", 1e3 * ranks * tokens() / ms},
                                   {"gflops", flops / ms * 1e-6}};
    add_memory(figures, at_warm_, steps_ - kWarmUp);
    return {fmt::format("{} GPT {} context {} batch {} {}", what, preset_.name,
                        preset_.config.context, preset_.batch, precision_.precision),
            ms, std::move(figures)};
  }

 private:
  const Preset& preset_;
  const PrecisionOptions& precision_;
  Gpt model_{preset_.config, 1};
  autograd::Autocast autocast_;
  optim::FlatParams params_{model_, precision_.buffers()};
  std::unique_ptr<distributed::SyncStrategy> strategy_ = distributed::make_strategy("allreduce");
  distributed::Reducer reducer_;
  std::unique_ptr<optim::Optimizer> optimizer_ =
      optim::make_optimizer("adamw", params_.all(), {.lr = 3e-4, .weight_decay = 0.01});
  Tensor ids_ = random_ids({preset_.batch, preset_.config.context}, preset_.config.vocab, 1);
  Tensor targets_ = random_ids({preset_.batch, preset_.config.context}, preset_.config.vocab, 2);
  optim::GradScaler scaler_{precision_.scaler(tokens())};
  int64_t steps_ = 0;
  StepCalls at_warm_;
};

// Calls f with the only rank.
template <class F>
void on_one_rank(const BenchOptions& options, F&& f) {
  distributed::run_ranks(1, {.backend = "solo"}, [&](Communicator& comm) {
    const ThreadBudget budget(static_cast<int>(options.threads));
    Rank rank(options, comm);
    f(rank);
  });
}

}  // namespace

Measurements bench_step(const BenchOptions& options) {
  Measurements out;
  on_one_rank(options, [&](Rank& rank) {
    const double ms = median_ms(options.repeats, [&] { rank.train(); });
    out.push_back(rank.measured("step", ms, 1));
  });
  return out;
}

Measurements bench_probe(const BenchOptions& options) {
  Measurements out;
  on_one_rank(options, [&](Rank& rank) {
    const double ms = median_ms(options.repeats, [&] { rank.train(); });
    distributed::GradientProbe probe = rank.make_probe();
    rank.observe(&probe);
    const double probed = median_ms(options.repeats, [&] { rank.train_probed(probe); });
    out.push_back(
        {"probe of a step", probed - ms, {{"percent_at_1_in_50", 2 * (probed - ms) / ms}}});
  });
  return out;
}

namespace {

using Times = std::vector<double>;

// Steps of so many ranks that never talk, on as many threads as there are cores: what a modelled
// cluster cannot do without.
Times times_of_work(const BenchOptions& options, int ranks, int64_t repeats) {
  const int threads = std::min(available_cores(), ranks);
  std::barrier together(threads);
  Times times;
  const auto work = [&](int thread) {
    const ThreadBudget budget(1);
    std::vector<Rank*> mine;
    const std::function<void(int)> with = [&](int more) {
      if (more > 0)
        return distributed::run_ranks(1, {.backend = "solo"}, [&](Communicator& comm) {
          Rank rank(options, comm);
          mine.push_back(&rank);
          with(more - 1);
        });
      Times seen = times_ms(repeats, [&] {
        for (Rank* rank : mine) rank->train();
        together.arrive_and_wait();
      });
      if (thread == 0) times = std::move(seen);
    };
    with(ranks * (thread + 1) / threads - ranks * thread / threads);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return times;
}

Times times_of_cluster(const BenchOptions& options, int ranks, int64_t repeats) {
  Times times;
  distributed::run_ranks(ranks, {.backend = "virtual"}, [&](Communicator& comm) {
    Rank rank(options, comm);
    Times seen = times_ms(repeats, [&] { rank.train(); });
    if (comm.rank() == 0) times = std::move(seen);
  });
  return times;
}

}  // namespace

// In turns: the machine may be busier at one time than at another.
Measurements bench_virtual(const BenchOptions& options) {
  constexpr int64_t kRounds = 5;
  const int ranks = static_cast<int>(options.ranks);
  const int64_t repeats = (options.repeats + kRounds - 1) / kRounds;
  Times cluster, work;
  for (int64_t round = 0; round < kRounds; ++round) {
    for (double ms : times_of_cluster(options, ranks, repeats)) cluster.push_back(ms);
    for (double ms : times_of_work(options, ranks, repeats)) work.push_back(ms);
  }
  const double ms = median(cluster), work_ms = median(work);
  return {{fmt::format("virtual {} ranks", ranks),
           ms,
           {{"work_ms", work_ms}, {"overhead_percent", 100 * (ms - work_ms) / work_ms}}}};
}

Measurements bench_parallel(const BenchOptions& options) {
  Measurements out;
  const int ranks = static_cast<int>(options.ranks);
  distributed::run_ranks(ranks, [&](Communicator& comm) {
    Rank rank(options, comm);
    const double ms = median_ms(options.repeats, [&] { rank.train(); });
    if (comm.rank() == 0)
      out.push_back(rank.measured(fmt::format("parallel {} ranks", ranks).c_str(), ms, ranks));
  });
  return out;
}

}  // namespace lockstep::apps

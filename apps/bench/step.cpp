#include "apps/bench/measure.h"
#include "apps/bench/presets.h"
#include "apps/training/probe_report.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/allocator.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/reducer.h"

#include <fmt/format.h>

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

}  // namespace

Measurements bench_all_reduce(const BenchOptions& options) {
  Measurements out;
  for (const int64_t kib : {256, 4096, 40960}) {
    double ms = 0;
    distributed::run_ranks(static_cast<int>(options.ranks), [&](Communicator& comm) {
      const Tensor x = zeros({kib * 256});
      const double mine = median_ms(options.repeats, [&] { comm.all_reduce(x)->wait(); });
      if (comm.rank() == 0) ms = mine;
    });
    out.push_back({fmt::format("allreduce {} ranks {} KiB", options.ranks, kib),
                   ms,
                   {{"gb_per_s", static_cast<double>(kib) * 1024 / ms * 1e-6}}});
  }
  return out;
}

Measurements bench_step(const BenchOptions& options) {
  const Preset& p = preset(options.preset);
  Measurements out;
  distributed::run_ranks(1, {.backend = "solo"}, [&](Communicator& comm) {
    const ThreadBudget budget(static_cast<int>(options.threads));
    Gpt model(p.config, 1);
    const autograd::Autocast autocast(options.precision.compute_dtype());
    optim::FlatParams params(model, options.precision.buffers());
    const auto strategy = distributed::make_strategy("allreduce");
    distributed::Reducer reducer(params, comm, *strategy,
                                 {.exchange = options.precision.exchange()});
    const auto optimizer = optim::make_optimizer("adamw", params.all(), {.lr = 3e-4});
    const Tensor ids = random_ids({p.batch, p.config.context}, p.config.vocab, 1);
    const Tensor targets = random_ids({p.batch, p.config.context}, p.config.vocab, 2);
    const auto tokens = static_cast<double>(ids.numel());
    optim::GradScaler scaler(options.precision.scaler(tokens));
    int64_t step = 0, warm_calls = 0;
    const auto train = [&] {
      if (step == 3) warm_calls = host_allocator().stats().system_calls;
      {
        const auto window = reducer.micro({.weight = tokens});
        autograd::backward(scaler.scale(model.loss_sum(ids, targets)));
      }
      const optim::StepVerdict verdict = reducer.finish_backward(scaler);
      reducer.step(*optimizer, verdict);
      scaler.update(verdict);
      reducer.finish_step(step++);
    };
    const double ms = median_ms(options.repeats, train);
    const auto calls = static_cast<double>(host_allocator().stats().system_calls - warm_calls);
    const double flops =
        6.0 * static_cast<double>(params.all().numel()) * tokens;  // without attention
    out.push_back(
        {fmt::format("step GPT {} context {} batch {} {}", p.name, p.config.context, p.batch,
                     options.precision.precision),
         ms,
         {{"tokens_per_s", 1e3 * tokens / ms},
          {"gflops", flops / ms * 1e-6},
          {"system_allocations_per_step", calls / static_cast<double>(options.repeats)}}});

    // What a probe adds to a step, its line of metrics.jsonl included.
    distributed::GradientProbe probe(params, options.precision.buffers().grads);
    reducer.observe(&probe);
    const double probed = median_ms(options.repeats, [&] {
      probe.begin(scaler.loss_scale());
      train();
      probe_json(probe, params).dump();
    });
    out.push_back({"step with --probe gradients",
                   probed,
                   {{"percent_at_1_in_50", 100 * (probed - ms) / (50 * ms)}}});
  });
  return out;
}

}  // namespace lockstep::apps

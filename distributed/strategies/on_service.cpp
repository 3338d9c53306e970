#include "distributed/strategies/on_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "core/kernels/elementwise.h"

namespace lockstep::distributed {

bool OnService::waits_for_all() const {
  if (options_.quorum == ServiceOptions::kEverybody) return true;
  return gathers() && context_ != nullptr && options_.quorum >= context_->comm->size();
}

void OnService::start(Optimizer& optimizer) {
  const optim::OptimizerOptions options = service_optimizer(optimizer);
  const Exchange& exchange = *context_->exchange;
  const DType pushed = pushed_dtype();
  ServiceSetup setup;
  setup.options = options_;
  setup.workers = context_->comm->size();
  setup.start = optimizer.authority();
  setup.gradient = pushed;
  setup.wire = exchange.wire();
  setup.code = exchange.push_code();
  setup.reduction = exchange.reduction();
  setup.optimizer = [&](optim::FlatView view) { return optimizer.another(view, options); };
  service_ = std::make_unique<ParameterService>(*context_->comm, setup);
  if (exchange.compresses()) return;
  if (setup.wire != pushed || (gathers() && setup.reduction.pre != 1))
    wire_ = Tensor::empty(setup.start.param.shape(), setup.wire, setup.start.param.device());
}

Push OnService::make_push(const Optimizer& optimizer, const StepVerdict& verdict) {
  const ReduceSpec reduction = context_->exchange->reduction();
  const float pre = gathers() ? reduction.pre : 1.0f;
  Push push{.clock = clock_, .weight = verdict.weight, .lr = optimizer.lr(), .used = verdict.used};
  if (!verdict.apply) return push;
  push.max_norm = verdict.max_norm;
  push.scale = verdict.scale * double{pre};
  if (waits_for_all()) {  // all ranks have the same verdict, of the sum over ranks
    push.factor = double{verdict.max_norm > 0 ? verdict.mean_factor : verdict.factor};
    push.scale = verdict.scale / double{reduction.post};
  }
  const Tensor made = made_of_gradient(optimizer, verdict, push);
  Exchange& exchange = *context_->exchange;
  if (exchange.compresses()) {
    push.grad = exchange.encode(made, {.scale = push.scale, .weight = push.weight, .lr = push.lr});
    return push;
  }
  push.grad = wire_.defined() ? wire_ : made;
  if (wire_.defined()) kernel::scale(wire_, made, pre);
  return push;
}

StepVerdict OnService::step(Optimizer& optimizer, const StepVerdict& verdict) {
  counted_ = false;
  if (waits_for_all() && !verdict.apply) return verdict;  // on all ranks
  const PushReply pushed = service_->push(make_push(optimizer, verdict));
  const Snapshot pulled = service_->pull(++clock_, optimizer.authority().param);
  open_ = pulled.clock;
  optimizer.publish();
  counted_ = pushed.outcome == PushOutcome::accepted && !pulled.overflowed;
  StepVerdict made = verdict;
  // It was finite until it was on the wire.
  if (verdict.apply && (pushed.outcome == PushOutcome::not_finite || pulled.overflowed))
    made.apply = made.finite = false;
  return made;
}

int64_t OnService::next_step(int64_t step, int64_t latest) {
  const int64_t over = std::max<int64_t>(std::min(open_ - clock_, latest - step - 1), 0);
  clock_ += over;
  return step + 1 + over;
}

void OnService::end() {
  if (service_) service_->leave();
  ended_ = true;
}

void OnService::before_evaluation() {
  if (!ended_ || !service_ || waits_for_all()) return;
  service_->await_all_left();
  own_.keep(*context_->optimizer);
  service_->peek(context_->optimizer->authority().param);
  context_->optimizer->publish();
}

double OnService::bytes_per_step() const {
  const optim::FlatView& all = context_->params->all();
  const DType pulled =
      context_->optimizer != nullptr ? context_->optimizer->weights().dtype() : all.param.dtype();
  const int64_t bytes = context_->exchange->pushed_bytes() + all.numel() * size_of(pulled);
  return static_cast<double>(bytes + static_cast<int64_t>(all.slices.size()));
}

void OnService::report(StrategyReport& report) {
  if (!service_) return;
  const ServiceStatistics statistics = service_->statistics();
  WorkerStatistics all;
  const auto number = [&](const char* name, auto field) {
    double sum = 0;
    for (const WorkerStatistics& worker : statistics.workers)
      sum += static_cast<double>(worker.*field);
    report.add(name, sum);
  };
  report.add("versions", static_cast<double>(statistics.steps));
  number("accepted", &WorkerStatistics::accepted);
  number("late", &WorkerStatistics::late);
  number("dropped", &WorkerStatistics::dropped);
  number("not_finite", &WorkerStatistics::not_finite);
  number("empty", &WorkerStatistics::empty);
  number("duplicate", &WorkerStatistics::duplicate);
  number("skipped", &WorkerStatistics::skipped);
  number("lost_weight", &WorkerStatistics::lost_weight);
  report.add("overflowed", static_cast<double>(statistics.overflowed));
  report.add("most_clocks_ahead", static_cast<double>(statistics.max_ahead));
  // Whose data was lost.
  for (size_t rank = 0; rank < statistics.workers.size(); ++rank) {
    const WorkerStatistics& worker = statistics.workers[rank];
    if (worker.late > 0)
      report.add(fmt::format("late.rank.{}", rank), static_cast<double>(worker.late));
    if (worker.dropped > 0)
      report.add(fmt::format("dropped.rank.{}", rank), static_cast<double>(worker.dropped));
    if (worker.skipped > 0)
      report.add(fmt::format("skipped.rank.{}", rank), static_cast<double>(worker.skipped));
    if (worker.lost_weight > 0)
      report.add(fmt::format("lost_weight.rank.{}", rank), worker.lost_weight);
    for (size_t t = 0; t < worker.staleness.size(); ++t) all.staleness[t] += worker.staleness[t];
  }
  report.add("staleness", all.staleness, WorkerStatistics::kBins);
  if (gathers()) return;  // nothing is ever stale
  for (size_t rank = 0; rank < statistics.workers.size(); ++rank)
    report.add(fmt::format("staleness.rank.{}", rank), statistics.workers[rank].staleness,
               WorkerStatistics::kBins);
}

void OnService::state(StateIo& io) {
  context_->exchange->state(io, Fold::per_rank);
  check(service_ != nullptr, "[strategy.state] call Reducer::start before");
  service_->state(io);
  io.value("clock", clock_, Fold::per_rank);
}

}  // namespace lockstep::distributed

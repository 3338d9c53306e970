#include "distributed/parameter_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "distributed/comm/fold.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/push_code.h"
#include "distributed/packed_state.h"

// Note [Clocks and quorums]
//
// A worker's clock is the number of gradients it has made; `next` is the clock of the one it makes
// now or is about to make. Without a quorum a gradient makes a step when it comes, and clocks
// matter for repeats and for the bound only.
//
// With a quorum one clock is open for all. Its gradients are copied as they come; it closes
// with the K-th one, or when all workers that are there have pushed. They are added up in the order
// of ranks, as an all-reduce adds them, so that the order in which they came leaves no trace.
// Whoever comes later is told "late", and goes on with the clock that is open by then.
//
// Calls that are not answered change nothing. All that lets one go on happens in calls that are
// answered: a push, a pull (which moves a late worker's clock), a leave.

namespace lockstep::distributed {
namespace {

// Of ServiceCall::numbers
enum Number { kScale, kMaxNorm, kFactor, kRate };

double rate_at(ServiceOptions::Rate rate, int64_t staleness) {
  const double t = static_cast<double>(std::max<int64_t>(staleness, 1));
  switch (rate) {
    case ServiceOptions::Rate::constant:
      break;
    case ServiceOptions::Rate::inverse:
      return 1 / t;
    case ServiceOptions::Rate::sqrt:
      return 1 / std::sqrt(t);
  }
  return 1;
}

void count(WorkerStatistics& counts, PushOutcome outcome, double weight) {
  switch (outcome) {
    case PushOutcome::accepted:
      ++counts.accepted;
      break;
    case PushOutcome::late:
      ++counts.late;
      counts.lost_weight += weight;
      break;
    case PushOutcome::dropped:
      ++counts.dropped;
      counts.lost_weight += weight;
      break;
    case PushOutcome::not_finite:
      ++counts.not_finite;
      break;
    case PushOutcome::empty:
      ++counts.empty;
      break;
    case PushOutcome::duplicate:
      ++counts.duplicate;
      break;
    case PushOutcome::early:
      break;
  }
}

}  // namespace

ParameterStore::ParameterStore(const ServiceSetup& setup)
    : options_(setup.options),
      reduction_(setup.reduction),
      wire_(setup.wire),
      code_(setup.code),
      slices_(setup.start.slices.begin(), setup.start.slices.end()),
      workers_(static_cast<size_t>(setup.workers)),
      used_(slices_.size()) {
  check(options_.quorum >= ServiceOptions::kAtOnce && options_.quorum <= setup.workers,
        "[service] quorum; expected at most {} workers, got {}", setup.workers, options_.quorum);
  const Tensor& start = setup.start.param;
  view_ = {.param = empty_like(start),
           .grad = zeros(start.shape(), setup.gradient, start.device()),
           .slices = slices_,
           .offset = setup.start.offset};
  kernel::copy(view_.param, start);
  optimizer_ = setup.optimizer(view_);
  check(!code_ || wire_ == DType::f32, "[service] codes are of f32, got a wire of {}",
        name_of(wire_));
  if (code_) decoded_ = Tensor::empty(start.shape(), DType::f32, start.device());
  statistics_.workers.resize(workers_.size());
  if (gathers() && wire_ != setup.gradient)
    sum_ = Tensor::empty(start.shape(), wire_, start.device());
  if (options_.compensate == 0) return;
  term_ = Tensor::empty(start.shape(), DType::f32, start.device());
  for (Worker& worker : workers_) {
    worker.seen = empty_like(start);
    kernel::copy(worker.seen, start);
  }
}

bool ParameterStore::handle(int rank, ServiceCall& call) {
  if (!stopped_.empty()) throw SystemError(Fault::communication, stopped_);
  Worker& worker = workers_[rank];
  const StateWalk walk = [this](StateIo& io) { state(io); };
  switch (static_cast<Kind>(call.kind)) {
    case push:
      take(rank, call);
      return true;
    case pull:
      return give(worker, call);
    case peek:
      kernel::copy(call.out, view_.param);
      call.version = version();
      return true;
    case leave:
      worker.here = false;
      if (complete()) close_clock();
      return true;
    case await_all_left:
      return std::ranges::none_of(workers_, &Worker::here);
    case stop:
      stopped_ = "[service] it was stopped";
      return true;
    case statistics:
      report(call.out);
      return true;
    case state_bytes:
      call.version = packed_bytes(walk);
      return true;
    case read_state:
      pack_state(call.out, walk);
      return true;
    case write_state:
      unpack_state(call.in, walk);
      return true;
  }
  throw UsageError(fmt::format("[service] unknown call {}", call.kind));
}

int64_t ParameterStore::slowest(const Worker* but) const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Worker& worker : workers_)
    if (worker.here && &worker != but) least = std::min(least, worker.next);
  return least;
}

// Pushes

PushOutcome ParameterStore::judge(const Worker& worker, const ServiceCall& call) const {
  if (call.clock < worker.next) return PushOutcome::duplicate;
  if (call.clock > (gathers() ? open_ : worker.next)) return PushOutcome::early;
  if (gathers() && call.clock < open_) return PushOutcome::late;
  if (call.weight == 0) return PushOutcome::empty;
  if (!call.in.defined() || kernel::first_non_finite(call.in) >= 0) return PushOutcome::not_finite;
  if (options_.drop_older >= 0 && version() - worker.pulled > options_.drop_older)
    return PushOutcome::dropped;
  return PushOutcome::accepted;
}

void ParameterStore::take(int rank, ServiceCall& call) {
  Worker& worker = workers_[rank];
  check(worker.here, "[service.push] worker {} has left", rank);
  check(call.clock >= 0 && call.weight >= 0 && std::isfinite(call.weight),
        "[service.push] clock and weight; expected at least 0, got {} and {}", call.clock,
        call.weight);
  const Tensor sent = call.in;
  if (code_ && sent.defined()) call.in = decode(rank, sent);
  check(!call.in.defined() || (call.in.numel() == view_.numel() && call.in.dtype() == wire_),
        "[service.push] gradient; expected {} {}, got {}", view_.numel(), name_of(wire_), call.in);
  check(call.flags.empty() || call.flags.size() == slices_.size(),
        "[service.push] used flags; expected {} or none, got {}", slices_.size(),
        call.flags.size());
  const PushOutcome outcome = judge(worker, call);
  call.outcome = static_cast<int>(outcome);
  call.staleness = version() - worker.pulled;
  count(statistics_.workers[rank], outcome, call.weight);
  if (outcome != PushOutcome::duplicate && outcome != PushOutcome::early) {
    statistics_.workers[rank].skipped += call.clock - worker.next;
    worker.next = call.clock + 1;
    if (!gathers()) {
      if (outcome == PushOutcome::accepted) apply_one(worker, call, rank);
    } else if (outcome != PushOutcome::late) {
      worker.pushed = Worker::without_gradient;
      worker.counts = outcome == PushOutcome::accepted || outcome == PushOutcome::empty;
      worker.lost = outcome == PushOutcome::not_finite;
      if (outcome == PushOutcome::accepted) keep(worker, call);
      if (complete()) close_clock();
    }
  }
  call.in = sent;
  call.version = version();
}

Tensor ParameterStore::decode(int rank, const Tensor& frame) const {
  try {
    code_->decode(
        {static_cast<const std::byte*>(frame.bytes_data()), static_cast<size_t>(frame.bytes())},
        {decoded_.mutable_data<float>(), static_cast<size_t>(decoded_.numel())});
  } catch (const BadCode& e) {
    throw SystemError(
        Fault::communication,
        fmt::format("[service.push] what rank {} pushed cannot be decoded: {}", rank, e.what()),
        {.rank = rank, .operation = "push", .sequence = -1});
  }
  return decoded_;
}

void ParameterStore::keep(Worker& worker, const ServiceCall& call) {
  const Tensor held = worker.kept.in.defined() ? worker.kept.in : empty_like(call.in);
  kernel::copy(held, call.in);
  worker.used.assign(call.flags.begin(), call.flags.end());
  worker.kept = call;
  worker.kept.in = held;
  worker.kept.out = {};
  worker.kept.flags = worker.used;
  worker.staleness = version() - worker.pulled;
  worker.pushed = Worker::gradient;
}

void ParameterStore::apply_one(Worker& worker, const ServiceCall& call, int rank) {
  const int64_t staleness = version() - worker.pulled;
  auto& bins = statistics_.workers[rank].staleness;
  ++bins[static_cast<size_t>(std::min(staleness, WorkerStatistics::kBins - 1))];
  kernel::cast(view_.grad, call.in);
  if (call.flags.empty())
    std::ranges::fill(used_, uint8_t{1});
  else
    std::ranges::copy(call.flags, used_.begin());
  const double factor =
      call.numbers[kFactor] > 0 ? call.numbers[kFactor] : 1 / (call.numbers[kScale] * call.weight);
  if (options_.compensate != 0) compensate(worker, factor);
  step(call, call.numbers[kScale], call.weight, staleness);
}

// Zheng et al. 2017, eq. 5: g + λ·g⊙g⊙(w - w_seen), in units of what the buffer holds: factor·it is
// the gradient.
void ParameterStore::compensate(const Worker& worker, double factor) {
  kernel::binary(term_, view_.param, worker.seen, kernel::Binary::subtract);
  for (int i = 0; i < 2; ++i) kernel::binary(term_, term_, view_.grad, kernel::Binary::multiply);
  kernel::add_scaled(view_.grad, term_, static_cast<float>(options_.compensate * factor));
}

// A clock's gradients

bool ParameterStore::complete() const {
  if (!gathers()) return false;
  int count = 0, pushed = 0;
  bool everybody = true;
  for (const Worker& worker : workers_) {
    pushed += worker.pushed != Worker::nothing ? 1 : 0;
    count += worker.pushed != Worker::nothing && worker.counts ? 1 : 0;
    everybody &= !worker.here || worker.pushed != Worker::nothing;
  }
  const bool enough = options_.quorum != ServiceOptions::kEverybody && count >= options_.quorum;
  return pushed > 0 && (enough || everybody);
}

void ParameterStore::close_clock() {
  arrived_.clear();
  // Where the workers agree on a verdict they push what is finite on all: it was the wire.
  overflowed_ =
      options_.quorum == ServiceOptions::kEverybody && std::ranges::any_of(workers_, &Worker::lost);
  for (size_t rank = 0; rank < workers_.size(); ++rank)
    if (workers_[rank].pushed == Worker::gradient) arrived_.push_back(static_cast<int>(rank));
  for (Worker& worker : workers_) {
    worker.pushed = Worker::nothing;
    worker.counts = worker.lost = false;
  }
  ++open_;
  if (overflowed_)
    ++statistics_.overflowed;
  else if (!arrived_.empty())
    add_up(arrived_);
}

void ParameterStore::add_up(const std::vector<int>& from) {
  const ServiceCall& first = workers_[from[0]].kept;
  double weight = 0;
  int64_t staleness = 0;
  ins_.clear();
  std::ranges::fill(used_, uint8_t{0});
  for (const int rank : from) {
    Worker& worker = workers_[rank];
    const double scale = worker.kept.numbers[kScale];
    if (scale != first.numbers[kScale])
      kernel::scale(worker.kept.in, worker.kept.in,
                    static_cast<float>(first.numbers[kScale] / scale));
    weight += worker.kept.weight;
    staleness = std::max(staleness, worker.staleness);
    auto& bins = statistics_.workers[rank].staleness;
    ++bins[static_cast<size_t>(std::min(worker.staleness, WorkerStatistics::kBins - 1))];
    ins_.push_back(worker.kept.in.bytes_data());
    for (size_t i = 0; i < used_.size(); ++i)
      used_[i] |= static_cast<uint8_t>(worker.used.empty() ? 1 : worker.used[i]);
  }
  const Tensor& sum = sum_.defined() ? sum_ : view_.grad;
  void* out = sum.mutable_bytes_data();
  // What the workers divided before the wire is in what they pushed already.
  ReduceSpec reduction = reduction_;
  reduction.pre = 1;
  fold({&out, 1}, ins_, wire_, view_.numel(), reduction);
  if (sum_.defined()) kernel::cast(view_.grad, sum_);
  const bool narrow = size_of(wire_) == 2 || size_of(view_.grad.dtype()) == 2;
  if (narrow && kernel::first_non_finite(view_.grad) >= 0) {
    ++statistics_.overflowed;
    overflowed_ = true;
    return;
  }
  step(first, first.numbers[kScale] * double{reduction_.post}, weight, staleness);
}

void ParameterStore::step(const ServiceCall& terms, double scale, double weight,
                          int64_t staleness) {
  optim::StepVerdict verdict;
  verdict.factor = terms.numbers[kFactor] > 0 ? static_cast<float>(terms.numbers[kFactor])
                                              : static_cast<float>(1 / (scale * weight));
  verdict.weight = weight;
  verdict.scale = scale;
  verdict.used = used_;
  if (terms.numbers[kMaxNorm] > 0) {
    const double norm =
        std::sqrt(kernel::sum_of_squares(view_.grad)) * static_cast<double>(verdict.factor);
    verdict.clip(norm, terms.numbers[kMaxNorm]);
  }
  double rate = terms.numbers[kRate] * rate_at(options_.rate, staleness);
  if (options_.share == ServiceOptions::Share::share)
    rate /= static_cast<double>(std::ranges::count_if(workers_, &Worker::here));
  optimizer_->set_lr(rate);
  optimizer_->step(verdict);
  if (verdict.apply) ++statistics_.steps;
}

// Pulls

bool ParameterStore::may_begin(const Worker& worker, int64_t clock) const {
  if (gathers() && clock > open_) return false;
  return options_.bound < 0 || clock - options_.bound <= slowest(&worker);
}

bool ParameterStore::give(Worker& worker, ServiceCall& call) {
  check(worker.here, "[service.pull] the worker has left");
  check(call.out.defined() && call.out.shape() == view_.param.shape() &&
            call.out.dtype() == view_.param.dtype(),
        "[service.pull] expected room for {}, got {}", view_.param,
        call.out.defined() ? describe(call.out) : "nothing");
  check(call.clock <= worker.next, "[service.pull] expected a clock of at most {}, got {}",
        worker.next, call.clock);
  if (!may_begin(worker, call.clock)) return false;
  kernel::copy(call.out, view_.param);
  if (options_.compensate != 0) kernel::copy(worker.seen, view_.param);
  worker.running = call.clock;
  if (gathers()) {
    call.clock = open_;
    call.outcome = overflowed_ ? 1 : 0;
  }
  worker.pulled = call.version = version();
  assert_bound();
  return true;
}

// Counted apart from what lets workers go on.
void ParameterStore::assert_bound() {
  int64_t furthest = 0;
  for (const Worker& worker : workers_)
    if (worker.here) furthest = std::max(furthest, worker.running);
  const int64_t ahead = furthest - slowest();
  statistics_.max_ahead = std::max(statistics_.max_ahead, ahead);
  if (options_.bound >= 0 && ahead > options_.bound)
    throw std::logic_error(fmt::format(
        "[service] a worker has begun clock {}, {} ahead of the slowest; the bound is {}", furthest,
        ahead, options_.bound));
}

ServiceHold ParameterStore::hold(int, const ServiceCall& call) const {
  ServiceHold hold;
  if (call.kind == await_all_left) {
    hold.what = "the others' end";
    for (size_t rank = 0; rank < workers_.size(); ++rank)
      if (workers_[rank].here) hold.ranks.push_back(static_cast<int>(rank));
    return hold;
  }
  if (call.kind != pull) return {};
  if (gathers() && call.clock > open_) {
    int pushed = 0;
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      const Worker& worker = workers_[rank];
      if (worker.pushed != Worker::nothing)
        ++pushed;
      else if (worker.here)
        hold.ranks.push_back(static_cast<int>(rank));
    }
    hold.what = fmt::format("the parameters of clock {}: {} of clock {}'s gradients have come",
                            call.clock, pushed, open_);
    return hold;
  }
  const int64_t least = call.clock - options_.bound;
  for (size_t rank = 0; rank < workers_.size(); ++rank)
    if (workers_[rank].here && workers_[rank].next < least)
      hold.ranks.push_back(static_cast<int>(rank));
  hold.what = fmt::format("the parameters of clock {}: the slowest is at clock {}, the bound is {}",
                          call.clock, slowest(), options_.bound);
  return hold;
}

}  // namespace lockstep::distributed

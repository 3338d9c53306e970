#include "distributed/reducer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "autograd/leaf.h"
#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "distributed/control.h"

// Note [Windows and rounds]
//
// A window is the micro-batches of one step; a round is one trip of all buckets through the
// strategy. A window has one round, which begins with its last micro-batch (Sync::now), or in
// finish_backward where there was none. Only Teach::reduce_running has a round per micro-batch.
//
// Within a round a bucket leaves when all its leaves are ready and all buckets before it have left:
// the order of collectives is the program's, not that of timing. What is left over (parameters that
// this micro-batch did not use, ranks without data) leaves in finish_backward, in the same order.

namespace lockstep::distributed {

using autograd::Landing;
using autograd::Leaf;

struct Reducer::Impl {
  optim::FlatParams& params;
  Communicator& comm;
  SyncStrategy& strategy;
  ReducerOptions options;
  std::vector<GradientBucket> buckets;
  std::vector<double> shares;  // of backward, by bucket: when it is complete
  Exchange exchange;
  SyncContext context;
  ControlExchange control;
  GradientObserver* observer = nullptr;
  TableSync* tables = nullptr;
  BufferSync* module_buffers = nullptr;
  std::vector<Leaf*> leaves;   // by slice
  std::vector<int> bucket_of;  // by slice

  // The window
  Control mine;                  // weight, micro-batches, non-finite so far
  std::vector<uint8_t> touched;  // by slice: a gradient has landed
  bool in_micro = false;
  bool last_micro = false;  // its last micro-batch has begun
  double scale = 1;         // of its micro-batches
  int64_t step = 0;
  bool ended = false;    // this rank makes no more steps
  int64_t computed = 0;  // micro-batches of the whole run
  // Windows since the last meeting
  bool some_data = false, all_data = true;  // this rank had data in one of them, in each
  Tensor had_data, ranks_had_data;          // u8: 0 or 1; of every rank
  // The round
  bool in_round = false;
  std::vector<uint8_t> ready;  // by slice
  std::vector<int> missing;    // by bucket: leaves not ready yet
  size_t next = 0;             // the bucket to leave next
  size_t arrived = 0;          // the work of all before it is over

  Impl(optim::FlatParams& p, Communicator& c, SyncStrategy& s, const ReducerOptions& o)
      : params(p),
        comm(c),
        strategy(s),
        options(o),
        buckets(make_buckets(p, o.bucket_bytes, o.first_bucket_bytes)),
        shares(ready_shares(buckets)),
        exchange(c, o.exchange, p.all()),
        control(c, static_cast<int>(p.slices().size())),
        bucket_of(p.slices().size()),
        touched(p.slices().size()),
        had_data(Tensor::empty({1}, DType::u8)),
        ranks_had_data(Tensor::empty({c.size()}, DType::u8)),
        ready(p.slices().size()),
        missing(buckets.size()) {
    for (size_t i = 0; i < p.slices().size(); ++i)
      leaves.push_back(&autograd::leaf_of(p.param(static_cast<int>(i))));
    for (const GradientBucket& bucket : buckets)
      for (int i = bucket.first_slice; i < bucket.last_slice; ++i) bucket_of[i] = bucket.index;
    context = {.comm = &comm, .params = &params, .buckets = buckets, .exchange = &exchange};
  }

  bool running() const { return options.teach == Teach::reduce_running; }
  bool window_is_empty() const { return mine.micros == 0; }

  void begin_window() {
    params.check_bound();
    comm.set_phase({"backward of step", step});
    for (Leaf* leaf : leaves) leaf->landing = Landing::overwrite;
  }

  void end_window() {
    mine = {};
    std::fill(touched.begin(), touched.end(), uint8_t{0});
    last_micro = false;
  }

  // `of_gradients`: what they carry.
  void begin_round(double of_gradients) {
    exchange.window({.scale = of_gradients,
                     .weight = mine.weight,
                     .lr = context.optimizer != nullptr ? context.optimizer->lr() : 1});
    in_round = true;
    next = arrived = 0;
    std::fill(ready.begin(), ready.end(), uint8_t{0});
    for (const GradientBucket& bucket : buckets)
      missing[bucket.index] = bucket.last_slice - bucket.first_slice;
  }

  // Zeroes what this rank has not contributed to, hands over the remaining buckets and waits.
  void end_round(double of_gradients) {
    if (!in_round) begin_round(of_gradients);
    for (size_t i = 0; i < touched.size(); ++i)
      if (touched[i] == 0) kernel::fill(leaves[i]->grad, 0);
    while (next < buckets.size()) launch();
    for (GradientBucket& bucket : buckets) {
      if (bucket.work) bucket.work->wait();
      bucket.work.reset();
    }
    in_round = false;
  }

  // The raw gradient is looked at before a reduction, a cast or a code can hide what is wrong with
  // it.
  void launch() {
    GradientBucket& bucket = buckets[next++];
    if (in_micro) comm.compute_reached(shares[bucket.index]);
    if (observer) observer->see(GradientStage::scaled, bucket.view, bucket.view.grad);
    look_for_non_finite(bucket.view);
    strategy.on_bucket(bucket);
  }

  void look_for_non_finite(const optim::FlatView& view) {
    if (kernel::first_non_finite(view.grad) < 0) return;
    mine.non_finite = 1;
    // The first parameter in order of construction is the last of the buffer.
    for (size_t i = view.slices.size(); i-- > 0;) {
      const optim::ParamSlice& slice = view.slices[i];
      const Tensor grad = view.grad.slice(slice.begin - view.offset, slice.end - view.offset);
      if (kernel::first_non_finite(grad) < 0) continue;
      mine.first_bad = std::max(mine.first_bad, int64_t{view.first_slice} + static_cast<int>(i));
      return;
    }
  }

  // Ends what has arrived, so that staging copies live no longer than they must. Failures are kept
  // for end_round.
  void collect() {
    while (arrived < next && (!buckets[arrived].work || buckets[arrived].work->done())) ++arrived;
  }

  void on_ready(int slice) {
    const std::string& name = params.slices()[slice].name;
    check(in_micro, "[reducer.backward] a gradient of {} outside micro(); it would not be counted",
          name);
    touched[slice] = 1;
    if (in_round) {
      check(ready[slice] == 0,
            "[reducer.backward] {} got a second gradient in the last micro-batch of a window; "
            "bucket {} must not be reduced twice. Open a micro() for every backward",
            name, bucket_of[slice]);
      ready[slice] = 1;
      --missing[bucket_of[slice]];
      while (next < buckets.size() && missing[next] == 0) launch();
    }
    comm.progress();
    collect();
  }

  // What is sent late is applied late: its parameter is used, although nobody touched it.
  void count_what_is_owed() {
    if (!exchange.keeps_residuals() || options.unused == Unused::error) return;
    for (size_t i = 0; i < touched.size(); ++i)
      if (touched[i] == 0)
        touched[i] = exchange.owes(params.slices()[i].begin, params.slices()[i].end) ? 1 : 0;
  }

  void check_unused() const {
    std::string text;
    for (size_t i = 0; i < touched.size(); ++i) {
      std::vector<int> ranks = control.ranks_without(static_cast<int>(i));
      if (ranks.empty()) continue;
      if (!shared()) ranks = {comm.rank()};
      text += fmt::format("{}{} (rank{} {})", text.empty() ? "" : ", ", params.slices()[i].name,
                          ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
    }
    check(text.empty(),
          "[reducer.finish_backward] parameters without a gradient in step {}: {}; --unused zero "
          "lets them be",
          step, text);
  }

  // Momentum correction replaces the optimiser's, which would come on top, and L2 decay after it.
  void expect_momentum_once(const Optimizer& optimizer) const {
    if (!exchange.corrects_momentum()) return;
    const optim::OptimizerOptions& o = optimizer.options();
    check(optimizer.name() == "sgd" && o.momentum == 0 && o.weight_decay == 0,
          "[reducer.start] compress '{}' corrects momentum; expected sgd without momentum and "
          "weight decay, got {} with {} and {}",
          options.exchange.compress, optimizer.name(), o.momentum, o.weight_decay);
  }

  bool keeps_residuals() const { return exchange.keeps_residuals() || strategy.keeps_residuals(); }
  bool shared() const { return strategy.verdict_scope() == VerdictScope::all_ranks; }
  // What an exchange divided sums by, which the verdict undoes. Not those of tables.
  double wire_factor() const { return shared() ? exchange.factor() : 1; }
  // Who has a say in whether training ends.
  int ranks_asked() const {
    return strategy.verdict_scope() == VerdictScope::this_rank ? 1 : comm.size();
  }

  // `all` is this rank alone unless the verdict is shared.
  StepVerdict judge(const Control& all, const optim::GradScaler& scaler) const {
    const int ranks = shared() ? comm.size() : 1, active = static_cast<int>(all.active);
    double weight = all.weight, counted = active;
    if (shared() && options.uneven == Uneven::initial) {
      weight += (ranks - active) * scaler.nominal_weight();
      counted = ranks;
    }
    if (options.teach == Teach::sum && counted > 0) weight /= counted;
    if (options.teach == Teach::no_division && active > 0)
      weight /= static_cast<double>(all.micros) / active;

    StepVerdict verdict;
    verdict.finite = all.non_finite == 0;
    verdict.first_bad = static_cast<int>(all.first_bad);
    verdict.active_ranks = active;
    verdict.weight = all.weight;
    verdict.used = control.used();
    verdict.scale = scaler.scale() * wire_factor();
    verdict.factor =
        active > 0 && weight > 0 ? static_cast<float>(1 / (verdict.scale * weight)) : 0;
    verdict.apply = verdict.finite && verdict.factor > 0 && !ends(active, ranks);
    return verdict;
  }

  // How many ranks had data since the last meeting: in some window, or in each where the first
  // rank without data ends the training.
  int meet() {
    had_data.mutable_data<uint8_t>()[0] = options.uneven == Uneven::stop ? all_data : some_data;
    comm.all_gather_v(ranks_had_data, had_data, {}, {"who had data", step})->wait();
    some_data = false;
    all_data = true;
    const uint8_t* had = ranks_had_data.data<uint8_t>();
    return static_cast<int>(std::count(had, had + comm.size(), uint8_t{1}));
  }

  // The verdict as tables need it, whose gradients no exchange divided.
  StepVerdict of_tables(StepVerdict verdict) const {
    const double factor = wire_factor();
    verdict.factor = static_cast<float>(verdict.factor * factor);
    verdict.mean_factor = static_cast<float>(verdict.mean_factor * factor);
    verdict.scale /= factor;
    return verdict;
  }

  bool ends(int active, int ranks) const {
    return active == 0 || (options.uneven == Uneven::stop && active < ranks);
  }
};

Reducer::Reducer(optim::FlatParams& params, Communicator& comm, SyncStrategy& strategy,
                 const ReducerOptions& options)
    : impl_(std::make_unique<Impl>(params, comm, strategy, options)) {
  comm.set_phase({"construction of reducer", 0});
  const auto number = [](auto choice) { return static_cast<int>(choice); };
  expect_same_on_all_ranks(
      comm,
      params.signature() + fmt::format("bucket bytes {} {}, unused {}, uneven {}, teach {}\n"
                                       "wire {}, reduce in {}, divide {}\n"
                                       "compress '{}', seed {}, way {}",
                                       options.bucket_bytes, options.first_bucket_bytes,
                                       number(options.unused), number(options.uneven),
                                       number(options.teach), name_of(options.exchange.wire),
                                       number(options.exchange.reduce_in),
                                       number(options.exchange.divide), options.exchange.compress,
                                       options.exchange.seed, number(options.exchange.way)),
      "parameters or reducer options");
  check(options.teach != Teach::reduce_running || impl_->exchange.factor() == 1,
        "[reducer] the running sum cannot be reduced again and again where each sum is divided by "
        "{:g}; use a wire and gradients of f32 or bf16, or divide nothing",
        1 / impl_->exchange.factor());
  if (impl_->exchange.compresses()) {
    check(options.teach != Teach::reduce_running,
          "[reducer] a running sum would be compressed again and again; expected no compression "
          "beside Teach::reduce_running, got '{}'",
          options.exchange.compress);
    check(strategy.sends_gradients(),
          "[reducer] compress '{}': this strategy sends something else than gradients; expected "
          "one that sums gradients",
          options.exchange.compress);
  }
  comm.broadcast(params.all().param, 0)->wait();
  params.bump_versions();
  for (size_t i = 0; i < impl_->leaves.size(); ++i)
    impl_->leaves[i]->on_ready = [impl = impl_.get(), slice = static_cast<int>(i)] {
      impl->on_ready(slice);
    };
  strategy.attach(impl_->context);
}

Reducer::~Reducer() {
  for (Leaf* leaf : impl_->leaves) leaf->on_ready = nullptr;
}

void Reducer::add_tables(TableSync& tables) {
  check(
      !tables.together() || impl_->shared(),
      "[reducer.add_tables] tables that all ranks step together need a strategy whose ranks share "
      "a verdict; expected e.g. allreduce or hybrid");
  impl_->tables = &tables;
}

void Reducer::add_buffers(BufferSync& buffers) { impl_->module_buffers = &buffers; }

Reducer::Micro Reducer::micro(const MicroOptions& options) {
  Impl& r = *impl_;
  check(!r.in_micro, "[reducer.micro] the micro-batch before is still open");
  check(std::isfinite(options.weight) && options.weight >= 0,
        "[reducer.micro] weight; expected at least 0, got {}", options.weight);
  check(
      !r.last_micro,
      "[reducer.micro] the window has had its last micro-batch (Sync::now), whose buckets must not "
      "be reduced twice; call finish_backward first");
  if (r.window_is_empty()) r.begin_window();
  if (r.in_round) r.end_round(r.scale);  // Teach::reduce_running: of the micro-batch before
  check(!r.keeps_residuals() || r.window_is_empty() || options.scale == r.scale,
        "[reducer.micro] scale; expected {}, that of the window's first micro-batch, got {}",
        r.scale, options.scale);
  r.scale = options.scale;
  if (options.samples == MicroOptions::Samples::yes) r.mine.active = 1;
  ++r.mine.micros;
  r.mine.weight += options.weight;
  if (options.sync == Sync::now || r.running()) r.begin_round(r.scale);
  r.last_micro = options.sync == Sync::now;
  r.in_micro = true;
  const bool ready_early = r.in_round && !r.buckets.empty();
  r.comm.compute_begins(
      {.step = r.step, .micro = r.computed++, .first_ready = ready_early ? r.shares.front() : 1});
  return Micro(*this);
}

Reducer::Micro::~Micro() {
  reducer_.impl_->comm.compute_reached(1);
  reducer_.impl_->in_micro = false;
}

StepVerdict Reducer::finish_backward(const optim::GradScaler& scaler) {
  Impl& r = *impl_;
  check(!r.in_micro, "[reducer.finish_backward] a micro-batch is still open");
  if (r.window_is_empty()) r.begin_window();
  check(!r.keeps_residuals() || r.window_is_empty() || r.scale == scaler.scale(),
        "[reducer.finish_backward] residuals of compression are kept without the loss scale; "
        "expected micro-batches of scale {}, the scaler's, got {}",
        scaler.scale(), r.scale);
  r.end_round(scaler.scale());
  r.strategy.before_step();
  if (r.exchange.take_overflow()) {
    r.look_for_non_finite(r.params.all());
    r.mine.non_finite = 1;  // a code hides it
  }
  if (r.tables != nullptr && !r.tables->exchange()) r.mine.non_finite = 1;
  r.count_what_is_owed();
  r.mine.scale = scaler.scale();
  const Control all = r.control.combine(r.shared() ? &r.comm : nullptr, r.mine, r.touched);
  r.some_data |= r.mine.active != 0;
  r.all_data &= r.mine.active != 0;
  r.end_window();
  r.control.expect_equal_scales(r.step);
  if (r.options.unused == Unused::error) r.check_unused();
  StepVerdict verdict = r.judge(all, scaler);
  if (r.strategy.verdict_scope() == VerdictScope::meeting) {
    verdict.active_ranks = r.meet();
    verdict.apply &= !r.ends(verdict.active_ranks, r.comm.size());
  }
  return r.strategy.judge(verdict);
}

bool Reducer::exhausted(const StepVerdict& verdict) {
  const bool over = impl_->ends(verdict.active_ranks, impl_->ranks_asked());
  if (over) end();
  return over;
}

double Reducer::grad_norm(const StepVerdict& verdict) const {
  check(
      impl_->tables == nullptr || !impl_->tables->together() || impl_->strategy.sums_gradients(),
      "[reducer.grad_norm] tables that all ranks step together, beside a service that clips "
      "dense gradients by a norm of its own; expected e.g. allreduce, which makes the same steps");
  double squares = kernel::sum_of_squares(impl_->params.all().grad);
  if (impl_->tables != nullptr && verdict.apply) {
    const double factor = impl_->wire_factor();  // as if it had been on the wire, too
    squares += impl_->tables->sum_of_squares() * factor * factor;
  }
  return std::sqrt(squares) * static_cast<double>(verdict.factor);
}

void Reducer::start(Optimizer& optimizer) {
  const bool known = impl_->context.optimizer != nullptr;
  impl_->context.optimizer = &optimizer;
  if (known) return;
  impl_->expect_momentum_once(optimizer);
  impl_->strategy.start(optimizer);
}

StepVerdict Reducer::step(Optimizer& optimizer, const StepVerdict& verdict) {
  impl_->comm.set_phase({"update of step", impl_->step});
  start(optimizer);
  const StepVerdict made = impl_->strategy.step(optimizer, verdict);
  impl_->strategy.resolve(made.apply);
  if (impl_->tables != nullptr) impl_->tables->step(impl_->of_tables(made));
  return made;
}

void Reducer::finish_step(int64_t step) {
  impl_->strategy.after_step(step);
  impl_->comm.step_ends(step);
  impl_->step = step + 1;
}

Reducer::Evaluating::Evaluating(Communicator& comm, SyncStrategy& strategy, TableSync* tables,
                                BufferSync* buffers)
    : strategy_(strategy), tables_(tables), buffers_(buffers) {
  const Untimed untimed(comm);
  strategy_.before_evaluation();
  if (tables_ != nullptr) tables_->before_evaluation();
  if (buffers_ != nullptr) buffers_->before_evaluation();
}

Reducer::Evaluating::~Evaluating() {
  if (buffers_ != nullptr) buffers_->after_evaluation();
  if (tables_ != nullptr) tables_->after_evaluation();
  strategy_.after_evaluation();
}

Reducer::Evaluating Reducer::evaluating(Optimizer& optimizer) {
  impl_->context.optimizer = &optimizer;
  impl_->comm.set_phase({"evaluation after step", impl_->step});
  // Ranks that go apart do not wait for each other before they have ended.
  const bool together = impl_->strategy.steps_between_sync() != 0 || impl_->ended;
  return {impl_->comm, impl_->strategy, impl_->tables, together ? impl_->module_buffers : nullptr};
}

int64_t Reducer::next_step(int64_t step, int64_t latest) {
  const int64_t next = impl_->strategy.next_step(step, latest);
  impl_->step = next;
  return next;
}

void Reducer::end() {
  impl_->ended = true;
  impl_->strategy.end();
}

void Reducer::observe(GradientObserver* observer) {
  impl_->observer = observer;
  impl_->exchange.observe(observer);
}

std::span<const GradientBucket> Reducer::buckets() const { return impl_->buckets; }
Communicator& Reducer::comm() const { return impl_->comm; }
const Exchange& Reducer::exchange() const { return impl_->exchange; }

}  // namespace lockstep::distributed

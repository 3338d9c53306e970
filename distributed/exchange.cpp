#include "distributed/exchange.h"

#include <bit>
#include <cmath>

#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "distributed/compress/push_code.h"
#include "distributed/compress/ways/compressed_sum.h"

namespace lockstep::distributed {
namespace {

bool is_narrow(DType dtype) { return size_of(dtype) == 2; }

Divide resolve_division(const ExchangeOptions& options, DType gradient) {
  if (options.divide != Divide::automatic) return options.divide;
  if (options.wire == DType::f16)
    return options.reduce_in == ReduceIn::wire ? Divide::split : Divide::after;
  return gradient == DType::f16 ? Divide::after : Divide::none;
}

// How many powers of two of the p in all are taken away before the wire.
int halvings_before(Divide divide, int p) {
  switch (divide) {
    case Divide::before:
      return p;
    case Divide::split:
      return (p + 1) / 2;
    case Divide::automatic:
    case Divide::none:
    case Divide::after:
      break;
  }
  return 0;
}

}  // namespace

// A sum on its way, and what is left to do when it has arrived.
class Exchange::Sum final : public Work {
 public:
  Sum(std::shared_ptr<SumWatch> watch, WorkPtr inner, const optim::FlatView& range, Tensor sent)
      : watch_(std::move(watch)), inner_(std::move(inner)), range_(range), sent_(std::move(sent)) {}

 protected:
  bool poll() override {
    if (!inner_->done()) return false;
    if (inner_->error()) std::rethrow_exception(inner_->error());
    return finish();
  }
  bool block(const Clock::time_point* until) override {
    if (until == nullptr)
      inner_->wait();
    else if (!inner_->wait_until(*until))
      return false;
    return finish();
  }

 private:
  bool finish() {
    const Tensor& grad = range_.grad;
    if (!sent_.is(grad)) kernel::cast(grad, sent_);
    // What was not finite on a wire of two bytes is not in a wider buffer either; a buffer of two
    // bytes can overflow after the wire.
    const Tensor& narrow = is_narrow(grad.dtype()) ? grad : sent_;
    if (is_narrow(narrow.dtype()) && kernel::first_non_finite(narrow) >= 0)
      watch_->overflowed = true;
    sent_ = {};
    if (watch_->observer) watch_->observer->see(GradientStage::reduced, range_, grad);
    return true;
  }

  std::shared_ptr<SumWatch> watch_;
  WorkPtr inner_;
  optim::FlatView range_;
  Tensor sent_;  // range_.grad itself, or the staging copy
};

Exchange::Exchange(Communicator& comm, const ExchangeOptions& options, DType gradient)
    : comm_(comm), options_(options), gradient_(gradient) {
  check(is_floating(options.wire) && is_floating(gradient),
        "[exchange] expected floating dtypes, got a wire of {} and gradients of {}",
        name_of(options.wire), name_of(gradient));
  const Divide divide = resolve_division(options, gradient);
  if (divide == Divide::none) return;
  const int p = std::bit_width(static_cast<unsigned>(comm.size() - 1));
  const int before = halvings_before(divide, p);
  pre_ = std::ldexp(1.0f, -before);
  post_ = std::ldexp(1.0f, before - p);
}

Exchange::Exchange(Communicator& comm, const ExchangeOptions& options, const optim::FlatView& all)
    : Exchange(comm, options, all.grad.dtype()) {
  all_ = all;
  if (options.compress.empty()) return;
  const CompressSpec spec = CompressSpec::parse(options.compress);
  check(options.wire == DType::f32,
        "[exchange] compress '{}': a code is what travels; leave out the wire of {}",
        options.compress, name_of(options.wire));
  check(options.reduce_in == ReduceIn::f32 && pre_ == 1,
        "[exchange] compress '{}': codes are added in f32, and nothing is divided before",
        options.compress);
  compression_ =
      std::make_shared<Compression>(comm, spec, options.seed, options.way, all, post_, watch_);
}

Exchange::~Exchange() {
  if (compression_) compression_->queue()->clear();
}

WorkPtr Exchange::sum(const optim::FlatView& range, OpTag tag) {
  const Tensor& grad = range.grad;
  check(grad.dtype() == gradient_, "[exchange.sum] expected gradients of {}, got {}",
        name_of(gradient_), name_of(grad.dtype()));
  if (compression_) return begin_sum(compression_, range, tag);
  Tensor sent = grad;
  if (options_.wire != gradient_ || pre_ != 1) {
    sent = Tensor::empty(grad.shape(), options_.wire, grad.device());
    if (pre_ == 1)
      kernel::cast(sent, grad);
    else
      kernel::scale(sent, grad, pre_);
  }
  if (watch_->observer) watch_->observer->see(GradientStage::wire, range, sent);
  WorkPtr work =
      comm_.all_reduce(sent, {.reduce_in = options_.reduce_in, .post = post_, .tag = tag});
  // f32 in place: nothing is left to do.
  if (sent.is(grad) && !is_narrow(gradient_) && !watch_->observer) return work;
  return make_pooled<Sum>(watch_, std::move(work), range, std::move(sent));
}

double Exchange::bytes(const optim::FlatView& range) const {
  if (compression_) return compression_->plan(range).most_bytes();
  const double n = comm_.size();
  return 2 * (n - 1) / n * static_cast<double>(range.numel() * size_of(options_.wire));
}

Tensor Exchange::encode(const Tensor& values, const WindowTerms& terms) {
  return compression_->encode_all(values, terms);
}

std::shared_ptr<const PushCode> Exchange::push_code() const {
  if (!compression_) return nullptr;
  return std::make_shared<PushCode>(compression_->spec().code, compression_->seed(), all_);
}

int64_t Exchange::pushed_bytes() const {
  return compression_ ? compression_->most_pushed_bytes() : all_.numel() * size_of(options_.wire);
}

bool Exchange::keeps_residuals() const { return compression_ && compression_->feedback(); }

bool Exchange::corrects_momentum() const {
  return compression_ && compression_->code().momentum() != 0;
}

bool Exchange::owes(int64_t begin, int64_t end) const {
  return compression_ && compression_->owes(begin, end);
}

void Exchange::window(const WindowTerms& terms) {
  terms_ = terms;
  if (compression_) compression_->set_window(terms);
}

int64_t Exchange::windows() const { return compression_ ? compression_->windows() : 0; }

void Exchange::resolve(bool applied) {
  if (compression_) compression_->resolve(applied);
}

void Exchange::state(StateIo& io, Fold windows) {
  if (compression_) compression_->state(io, windows);
}

CompressionReport Exchange::report() const {
  return compression_ ? compression_->report() : CompressionReport();
}

bool Exchange::take_overflow() { return std::exchange(watch_->overflowed, false); }

}  // namespace lockstep::distributed

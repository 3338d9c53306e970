#include "optim/optimizer.h"

#include "core/kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::optim {
namespace {

constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;

void expect(bool ok, std::string_view name, std::string_view expected, double got) {
  check(ok, "[optim.optimizer] {}; expected {}, got {}", name, expected, got);
}

void check_rate(double lr) {
  expect(std::isfinite(lr) && lr >= 0, "learning rate", "at least 0", lr);
}

void check_options(const OptimizerOptions& o) {
  const auto non_negative = [](std::string_view name, double x) {
    expect(std::isfinite(x) && x >= 0, name, "at least 0", x);
  };
  check_rate(o.lr);
  non_negative("momentum", o.momentum);
  expect(std::isfinite(o.dampening), "dampening", "a finite number", o.dampening);
  expect(o.beta1 >= 0 && o.beta1 < 1, "beta1", "0 <= beta1 < 1", o.beta1);
  expect(o.beta2 >= 0 && o.beta2 < 1, "beta2", "0 <= beta2 < 1", o.beta2);
  non_negative("eps", o.eps);
  non_negative("weight decay", o.weight_decay);
}

OptimizerOptions with_settings(OptimizerOptions o, const Spec& spec) {
  o.momentum = spec.number("momentum", o.momentum, {.min = 0});
  o.dampening = spec.number("dampening", o.dampening);
  o.nesterov = spec.flag("nesterov", o.nesterov);
  o.beta1 = spec.number("beta1", o.beta1, {.min = 0, .max = kBelowOne});
  o.beta2 = spec.number("beta2", o.beta2, {.min = 0, .max = kBelowOne});
  o.eps = spec.number("eps", o.eps, {.min = 0});
  o.weight_decay = spec.number("weight_decay", o.weight_decay, {.min = 0});
  return o;
}

}  // namespace

Optimizer::Optimizer(FlatView view, const OptimizerOptions& options)
    : view_(std::move(view)), options_(options), steps_(view_.slices.size(), 0) {
  check_options(options_);
  runs_.reserve(view_.slices.size());
  check(view_.grad.defined() && view_.grad.shape() == view_.param.shape(),
        "[optim.optimizer] expected a gradient for every parameter");
  int64_t covered = view_.offset;
  for (const ParamSlice& slice : view_.slices) {
    check(slice.begin <= covered, "[optim.optimizer] no slice at element {}", covered);
    covered = slice.end;
  }
  check(covered >= view_.offset + view_.numel(), "[optim.optimizer] no slice at element {}",
        covered);
  if (options_.master && view_.param.dtype() != DType::f32) {
    master_ = Tensor::empty(view_.param.shape(), DType::f32, view_.param.device());
    kernel::cast(master_, view_.param);
  }
}

void Optimizer::step(const StepVerdict& verdict) {
  if (!verdict.apply) return;
  const size_t needed = static_cast<size_t>(view_.first_slice) + view_.slices.size();
  check(verdict.used.empty() || verdict.used.size() >= needed,
        "[optim.step] used flags; expected {} or none, got {}", needed, verdict.used.size());
  runs_.clear();
  for (size_t i = 0; i < view_.slices.size(); ++i) {
    if (!verdict.used.empty() && verdict.used[view_.first_slice + i] == 0) continue;
    const ParamSlice& slice = view_.slices[i];
    if (!view_.params.empty()) view_.params[i].bump_version();
    const Run next{.begin = std::max(slice.begin - view_.offset, int64_t{0}),
                   .end = std::min(slice.end - view_.offset, view_.numel()),
                   .weight_decay = slice.decay ? options_.weight_decay : 0,
                   .step = ++steps_[i]};
    if (next.begin >= next.end) continue;
    const bool alike = !runs_.empty() && next.begin == runs_.back().end &&
                       next.weight_decay == runs_.back().weight_decay &&
                       next.step == runs_.back().step;
    if (alike)
      runs_.back().end = next.end;
    else
      runs_.push_back(next);
  }
  if (!runs_.empty()) update(runs_, verdict.factor);
}

void Optimizer::state(StateIo& io) {
  io.value("lr", options_.lr, Fold::replicated);
  for (size_t i = 0; i < steps_.size(); ++i)
    io.value("steps." + view_.slices[i].name, steps_[i], Fold::replicated);
  if (master_.defined()) io.flat("master", master_, Fold::replicated);
}

FlatView Optimizer::authority() {
  if (!master_.defined()) return view_;
  FlatView view = view_;
  view.param = master_;
  view.params = {};
  return view;
}

void Optimizer::publish() {
  if (master_.defined()) kernel::cast(view_.param, master_);
  view_.bump_versions();
}

Tensor Optimizer::moments() const {
  return zeros(view_.param.shape(), DType::f32, view_.param.device());
}

void Optimizer::set_lr(double lr) {
  check_rate(lr);
  options_.lr = lr;
}

std::unique_ptr<Optimizer> Optimizer::another(FlatView view,
                                              const OptimizerOptions& options) const {
  check(!name_.empty(), "[optim.another] expected an optimizer made by make_optimizer()");
  return make_optimizer(Spec(name_), std::move(view), options);
}

std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatView view,
                                          const OptimizerOptions& options) {
  const auto& registry = OptimizerRegistry::instance();
  Spec settings = spec;
  registry.find(settings);  // complains of unknown settings before any of them is read
  std::unique_ptr<Optimizer> made =
      registry.make(settings, std::move(view), with_settings(options, settings));
  made->name_ = spec.name();
  return made;
}

}  // namespace lockstep::optim

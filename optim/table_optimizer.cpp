#include "optim/table_optimizer.h"

#include <cmath>
#include <limits>

namespace lockstep::optim {
namespace {

constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;

void expect_at_least_0(std::string_view name, double x) {
  check(std::isfinite(x) && x >= 0, "[optim.table_optimizer] {}; expected at least 0, got {}", name,
        x);
}

void expect_beta(std::string_view name, double x) {
  check(x >= 0 && x < 1, "[optim.table_optimizer] {}; expected 0 <= {} < 1, got {}", name, name, x);
}

TableOptions with_settings(TableOptions o, const Spec& spec) {
  o.beta1 = spec.number("beta1", o.beta1, {.min = 0, .max = kBelowOne});
  o.beta2 = spec.number("beta2", o.beta2, {.min = 0, .max = kBelowOne});
  o.eps = spec.number("eps", o.eps, {.min = 0});
  o.weight_decay = spec.number("weight_decay", o.weight_decay, {.min = 0});
  return o;
}

}  // namespace

TableOptimizer::TableOptimizer(Tensor tables, const TableOptions& options)
    : tables_(std::move(tables)), options_(options) {
  check(tables_.rank() == 2 && tables_.dtype() == DType::f32,
        "[optim.table_optimizer] tables; expected f32 [rows, width], got {}", tables_);
  expect_at_least_0("learning rate", options_.lr);
  expect_at_least_0("eps", options_.eps);
  expect_at_least_0("weight decay", options_.weight_decay);
  expect_beta("beta1", options_.beta1);
  expect_beta("beta2", options_.beta2);
}

void TableOptimizer::apply(const kernel::RowGradients& gradient, const StepVerdict& verdict) {
  update(gradient, {.lr = options_.lr,
                    .factor = verdict.factor,
                    .weight_decay = options_.weight_decay,
                    .eps = options_.eps,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .step = steps_ + 1});
  ++steps_;
}

void TableOptimizer::step(const SparseGrad& gradient, const StepVerdict& verdict) {
  if (!verdict.apply) return;
  check(gradient.rows.defined() && gradient.values.defined(),
        "[optim.table_optimizer] expected the gradient's rows and values");
  apply({.rows = gradient.rows, .values = gradient.values}, verdict);
}

void TableOptimizer::step(autograd::TableGradient& gradient, const StepVerdict& verdict) {
  if (verdict.apply) apply(gradient.uncoalesced(), verdict);
  gradient.clear();
}

void TableOptimizer::state(StateIo& io) {
  io.value("lr", options_.lr, Fold::replicated);
  io.value("steps", steps_, Fold::replicated);
}

void TableOptimizer::set_lr(double lr) {
  expect_at_least_0("learning rate", lr);
  options_.lr = lr;
}

std::unique_ptr<TableOptimizer> make_table_optimizer(const Spec& spec, const Tensor& tables,
                                                     const TableOptions& options) {
  const auto& registry = TableOptimizerRegistry::instance();
  Spec settings = spec;
  registry.find(settings);  // complains of unknown settings before any of them is read
  return registry.make(settings, tables, with_settings(options, settings));
}

}  // namespace lockstep::optim

#include "core/kernels/optim_step.h"

#include <cmath>

#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/optim_loops.h"

namespace lockstep::cpu {
namespace {

using kernel::StepRun;

float f(double x) { return static_cast<float>(x); }

void expect_moment(std::string_view kernel, const Tensor& moment, const Tensor& param) {
  expect_dtype(kernel, "a moment", moment, DType::f32);
  expect_shape(kernel, "a moment", moment, param.shape());
}

// For every run loop_of(run)(param, grad, at, n) over its elements as floats; what that leaves in
// `param` is stored there and in `copy`.
template <class LoopOf>
void step_floats(std::string_view kernel, int64_t grain, const Tensor& param, const Tensor& grad,
                 const Tensor& copy, std::span<const StepRun> runs, LoopOf loop_of) {
  expect_same_floats(kernel, {&param, &grad});
  if (copy.defined()) {
    expect_same_floats(kernel, {&param, &copy});
    check(copy.dtype() != DType::f32, "[kernel.{}] copy; expected f16 or bf16, got f32", kernel);
  }
  const FloatsIn from(param), g(grad);
  const FloatsOut to(param), also(copy);
  parallel_for(param.numel(), grain, [&](int64_t begin, int64_t end) {
    Room value, slope;
    for (const StepRun& run : runs) {
      const int64_t first = std::max(begin, run.begin), last = std::min(end, run.end);
      if (first >= last) continue;
      const auto loop = loop_of(run);
      in_rooms(any_narrow(to, g, also), first, last, [&](int64_t at, int64_t n) {
        float* w = to.place(at, value);
        from.read(at, n, value);
        loop(w, g.read(at, n, slope), at, n);
        to.write(at, n, w);
        also.write(at, n, w);
      });
    }
  });
}

void sgd_step(const Tensor& param, const Tensor& velocity, const Tensor& grad,
              const kernel::SgdStep& step) {
  const bool momentum = step.momentum != 0;
  check(!momentum || velocity.defined(), "[kernel.sgd_step] momentum {} without a velocity",
        step.momentum);
  if (momentum) expect_moment("sgd_step", velocity, param);
  const SgdForm form = !momentum ? SgdForm::plain
                       : !step.nesterov
                           ? (step.first ? SgdForm::first : SgdForm::momentum)
                           : (step.first ? SgdForm::first_nesterov : SgdForm::nesterov);
  const SgdConstants constants{f(step.lr), f(step.factor), f(step.momentum), f(1 - step.dampening),
                               f(step.weight_decay)};
  float* v = momentum ? velocity.mutable_data<float>() : nullptr;
  const auto& loops = LOCKSTEP_PICK_LOOPS(Optim);
  const StepRun whole{.begin = 0, .end = param.numel()};
  step_floats("sgd_step", kGrain, param, grad, step.copy, {&whole, 1}, [&](const StepRun&) {
    return [&](float* w, const float* g, int64_t at, int64_t n) {
      loops.sgd(w, v ? v + at : nullptr, g, n, constants, form);
    };
  });
}

AdamConstants constants_of(const kernel::AdamStep& step, const StepRun& run) {
  const double t = static_cast<double>(run.step);
  return {.factor = f(step.factor),
          .beta2 = f(step.beta2),
          .fresh1 = f(1 - step.beta1),
          .fresh2 = f(1 - step.beta2),
          .step_size = f(step.lr / (1 - std::pow(step.beta1, t))),
          .scale2 = f(1 / std::sqrt(1 - std::pow(step.beta2, t))),
          .eps = f(step.eps),
          .l2 = f(step.decoupled ? 0 : run.weight_decay),
          .keep = f(step.decoupled ? 1 - step.lr * run.weight_decay : 1)};
}

void adam_step(const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
               const kernel::AdamStep& step) {
  expect_moment("adam_step", m, param);
  expect_moment("adam_step", v, param);
  const StepRun whole{
      .begin = 0, .end = param.numel(), .weight_decay = step.weight_decay, .step = step.step};
  const std::span<const StepRun> runs = step.runs.empty() ? std::span(&whole, 1) : step.runs;
  int64_t covered = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const StepRun& run = runs[i];
    check(run.step >= 1, "[kernel.adam_step] step; expected at least 1, got {}", run.step);
    check(covered <= run.begin && run.begin <= run.end && run.end <= param.numel(),
          "[kernel.adam_step] run {}; expected {} <= begin <= end <= {}, got {}..{}", i, covered,
          param.numel(), run.begin, run.end);
    covered = run.end;
  }
  float *first = m.mutable_data<float>(), *second = v.mutable_data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Optim);
  step_floats("adam_step", kGrain / 2, param, grad, step.copy, runs, [&](const StepRun& run) {
    return
        [&, constants = constants_of(step, run)](float* w, const float* g, int64_t at, int64_t n) {
          loops.adam(w, first + at, second + at, g, n, constants);
        };
  });
}

const Provide provided[] = {
    {kernel::sgd_step, DeviceType::cpu, sgd_step},
    {kernel::adam_step, DeviceType::cpu, adam_step},
};

}  // namespace
}  // namespace lockstep::cpu

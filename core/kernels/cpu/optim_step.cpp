#include "core/kernels/optim_step.h"

#include <cmath>

#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/optim_loops.h"

namespace lockstep::cpu {
namespace {

float f(double x) { return static_cast<float>(x); }

void expect_moment(std::string_view kernel, const Tensor& moment, const Tensor& param) {
  expect_dtype(kernel, "a moment", moment, DType::f32);
  expect_shape(kernel, "a moment", moment, param.shape());
}

// loop(param, grad, at, n) over all elements as floats; what it leaves in `param` is stored there
// and in `copy`.
template <class Loop>
void step_floats(std::string_view kernel, int64_t grain, const Tensor& param, const Tensor& grad,
                 const Tensor& copy, Loop loop) {
  expect_same_floats(kernel, {&param, &grad});
  if (copy.defined()) {
    expect_same_floats(kernel, {&param, &copy});
    check(copy.dtype() != DType::f32, "[kernel.{}] copy; expected f16 or bf16, got f32", kernel);
  }
  const FloatsIn from(param), g(grad);
  const FloatsOut to(param), also(copy);
  parallel_for(param.numel(), grain, [&](int64_t begin, int64_t end) {
    Room value, slope;
    in_rooms(any_narrow(to, g, also), begin, end, [&](int64_t at, int64_t n) {
      float* w = to.place(at, value);
      from.read(at, n, value);
      loop(w, g.read(at, n, slope), at, n);
      to.write(at, n, w);
      also.write(at, n, w);
    });
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
  step_floats("sgd_step", kGrain, param, grad, step.copy,
              [&](float* w, const float* g, int64_t at, int64_t n) {
                loops.sgd(w, v ? v + at : nullptr, g, n, constants, form);
              });
}

void adam_step(const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
               const kernel::AdamStep& step) {
  expect_moment("adam_step", m, param);
  expect_moment("adam_step", v, param);
  check(step.step >= 1, "[kernel.adam_step] step; expected at least 1, got {}", step.step);
  const double t = static_cast<double>(step.step);
  const AdamConstants constants{
      .factor = f(step.factor),
      .beta2 = f(step.beta2),
      .fresh1 = f(1 - step.beta1),
      .fresh2 = f(1 - step.beta2),
      .step_size = f(step.lr / (1 - std::pow(step.beta1, t))),
      .scale2 = f(1 / std::sqrt(1 - std::pow(step.beta2, t))),
      .eps = f(step.eps),
      .l2 = f(step.decoupled ? 0 : step.weight_decay),
      .keep = f(step.decoupled ? 1 - step.lr * step.weight_decay : 1),
  };
  float *first = m.mutable_data<float>(), *second = v.mutable_data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Optim);
  step_floats("adam_step", kGrain / 2, param, grad, step.copy,
              [&](float* w, const float* g, int64_t at, int64_t n) {
                loops.adam(w, first + at, second + at, g, n, constants);
              });
}

const Provide provided[] = {
    {kernel::sgd_step, DeviceType::cpu, sgd_step},
    {kernel::adam_step, DeviceType::cpu, adam_step},
};

}  // namespace
}  // namespace lockstep::cpu

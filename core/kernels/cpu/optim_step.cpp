#include "core/kernels/optim_step.h"

#include <cmath>

#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/optim_loops.h"

namespace lockstep::cpu {
namespace {

float f(double x) { return static_cast<float>(x); }

void sgd_step(const Tensor& param, const Tensor& velocity, const Tensor& grad,
              const kernel::SgdStep& step) {
  expect_same("sgd_step", {&param, &grad});
  const bool momentum = step.momentum != 0;
  check(!momentum || velocity.defined(), "[kernel.sgd_step] momentum {} without a velocity",
        step.momentum);
  if (momentum) expect_same("sgd_step", {&param, &velocity});
  const SgdForm form = !momentum ? SgdForm::plain
                       : !step.nesterov
                           ? (step.first ? SgdForm::first : SgdForm::momentum)
                           : (step.first ? SgdForm::first_nesterov : SgdForm::nesterov);
  const SgdConstants constants{f(step.lr), f(step.factor), f(step.momentum), f(1 - step.dampening),
                               f(step.weight_decay)};
  const float* g = grad.data<float>();
  float *w = param.mutable_data<float>(), *v = momentum ? velocity.mutable_data<float>() : nullptr;
  const auto& loops = LOCKSTEP_PICK_LOOPS(Optim);
  parallel_for(param.numel(), kGrain, [&](int64_t begin, int64_t end) {
    loops.sgd(w + begin, v ? v + begin : nullptr, g + begin, end - begin, constants, form);
  });
}

void adam_step(const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
               const kernel::AdamStep& step) {
  expect_same("adam_step", {&param, &m, &v, &grad});
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
  const float* g = grad.data<float>();
  float *w = param.mutable_data<float>(), *first = m.mutable_data<float>(),
        *second = v.mutable_data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Optim);
  parallel_for(param.numel(), kGrain / 2, [&](int64_t begin, int64_t end) {
    loops.adam(w + begin, first + begin, second + begin, g + begin, end - begin, constants);
  });
}

const Provide provided[] = {
    {kernel::sgd_step, DeviceType::cpu, sgd_step},
    {kernel::adam_step, DeviceType::cpu, adam_step},
};

}  // namespace
}  // namespace lockstep::cpu

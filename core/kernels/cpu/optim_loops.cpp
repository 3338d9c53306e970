#include "core/kernels/cpu/optim_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

inline Vec get(const float* p, int64_t left) { return left >= kWidth ? load(p) : load_n(p, left); }
inline void put(float* p, Vec v, int64_t left) {
  left >= kWidth ? store(p, v) : store_n(p, v, left);
}

template <SgdForm kForm>
inline void sgd_with(float* w, float* velocity, const float* grad, int64_t n, SgdConstants c) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec p = get(w + i, left);
    Vec g = get(grad + i, left) * set(c.factor) + p * set(c.decay);
    if constexpr (kForm != SgdForm::plain) {
      Vec v = g;
      if constexpr (kForm == SgdForm::momentum || kForm == SgdForm::nesterov)
        v = get(velocity + i, left) * set(c.momentum) + g * set(c.fresh);
      put(velocity + i, v, left);
      g = kForm == SgdForm::nesterov || kForm == SgdForm::first_nesterov ? g + v * set(c.momentum)
                                                                         : v;
    }
    put(w + i, p - g * set(c.lr), left);
  }
}

void sgd(float* w, float* velocity, const float* grad, int64_t n, SgdConstants c, SgdForm form) {
  switch (form) {
    case SgdForm::plain:
      return sgd_with<SgdForm::plain>(w, velocity, grad, n, c);
    case SgdForm::first:
      return sgd_with<SgdForm::first>(w, velocity, grad, n, c);
    case SgdForm::momentum:
      return sgd_with<SgdForm::momentum>(w, velocity, grad, n, c);
    case SgdForm::nesterov:
      return sgd_with<SgdForm::nesterov>(w, velocity, grad, n, c);
    case SgdForm::first_nesterov:
      return sgd_with<SgdForm::first_nesterov>(w, velocity, grad, n, c);
  }
}

void adam(float* w, float* m, float* v, const float* grad, int64_t n, AdamConstants c) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    Vec p = get(w + i, left);
    const Vec g = get(grad + i, left) * set(c.factor) + p * set(c.l2);
    p *= set(c.keep);
    const Vec m0 = get(m + i, left);
    const Vec m1 = m0 + (g - m0) * set(c.fresh1);
    const Vec v1 = get(v + i, left) * set(c.beta2) + g * g * set(c.fresh2);
    put(m + i, m1, left);
    put(v + i, v1, left);
    put(w + i, p - set(c.step_size) * m1 / (sqrt(v1) * set(c.scale2) + set(c.eps)), left);
  }
}

}  // namespace

const OptimLoops LOCKSTEP_LOOPS_TABLE(Optim) = {sgd, adam};

}  // namespace lockstep::cpu

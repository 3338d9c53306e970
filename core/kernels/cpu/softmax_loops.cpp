#include "core/kernels/cpu/softmax_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

inline Vec get(const float* p, int64_t left) { return left >= kWidth ? load(p) : load_n(p, left); }
inline void put(float* p, Vec v, int64_t left) {
  left >= kWidth ? store(p, v) : store_n(p, v, left);
}
inline Vec zero_after(Vec v, int64_t left) { return left >= kWidth ? v : keep_n(v, left, Vec{}); }

inline float row_max(const float* x, int64_t n) {
  Vec top = set(-kInfinity);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) top = max(load(x + i), top);
  if (i < n) top = max(keep_n(load_n(x + i, n - i), n - i, set(-kInfinity)), top);
  return reduce_max(top);
}

inline float sum_exp(const float* x, float top, int64_t n) {
  Vec sum{};
  for (int64_t i = 0; i < n; i += kWidth)
    sum += zero_after(exp(get(x + i, n - i) - set(top)), n - i);
  return reduce_add(sum);
}

inline float scalar_exp(float x) { return exp(set(x))[0]; }
inline float scalar_log(float x) { return log(set(x))[0]; }

void softmax(float* out, const float* x, int64_t n) {
  const float top = row_max(x, n);
  if (top == -kInfinity) {  // nothing is allowed (or a NaN is there, which stays)
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] != x[i] ? x[i] : 0.0f;
    return;
  }
  Vec sum{};
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec e = zero_after(exp(get(x + i, n - i) - set(top)), n - i);
    put(out + i, e, n - i);
    sum += e;
  }
  const Vec scale = set(1.0f / reduce_add(sum));
  for (int64_t i = 0; i < n; i += kWidth) put(out + i, get(out + i, n - i) * scale, n - i);
}

void softmax_backward(float* dx, const float* dy, const float* y, int64_t n) {
  Vec dots{};
  for (int64_t i = 0; i < n; i += kWidth) dots = fma(get(dy + i, n - i), get(y + i, n - i), dots);
  const Vec dot = set(reduce_add(dots));
  for (int64_t i = 0; i < n; i += kWidth)
    put(dx + i, get(y + i, n - i) * (get(dy + i, n - i) - dot), n - i);
}

void cross_entropy(float* loss, float* lse, const float* logits, int64_t target, int64_t n) {
  const float top = row_max(logits, n), log_sum = scalar_log(sum_exp(logits, top, n));
  *lse = top + log_sum;
  *loss =
      (top - logits[target]) + log_sum;  // not lse - logit: that loses log_sum beside a large top
}

void cross_entropy_backward(float* dlogits, const float* logits, float lse, int64_t target,
                            float dloss, int64_t n) {
  // p = e^(x - offset) · scale. The rounding of a large lse would be an error in every p: there the
  // row is summed again.
  constexpr float kTrusted = 16.0f;
  float offset = lse, scale = 1.0f;
  if (!(lse <= kTrusted && lse >= -kTrusted)) {
    offset = row_max(logits, n);
    scale = 1.0f / sum_exp(logits, offset, n);
  }
  const float at_target = scalar_exp(logits[target] - offset) * scale;
  const Vec o = set(offset), factor = set(scale * dloss);
  for (int64_t i = 0; i < n; i += kWidth)
    put(dlogits + i, exp(get(logits + i, n - i) - o) * factor, n - i);
  dlogits[target] = (at_target - 1.0f) * dloss;
}

// log(1 + e) for e in [0, 1], to a few ulp of itself.
inline Vec log1p(Vec e) {
  const Vec u = e + set(1.0f), d = u - set(1.0f);
  return select(d == Vec{}, e, log(u) * (e / d));
}

void bce(float* losses, const float* logits, const float* targets, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec x = get(logits + i, n - i), t = get(targets + i, n - i);
    put(losses + i, (max(Vec{}, x) - x * t) + log1p(exp(-abs(x))), n - i);
  }
}

void bce_backward(float* dlogits, const float* logits, const float* targets, float dloss,
                  int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec x = get(logits + i, n - i), e = exp(-abs(x));
    const Vec sigmoid = select(x < Vec{}, e, set(1.0f)) / (e + set(1.0f));
    put(dlogits + i, (sigmoid - get(targets + i, n - i)) * set(dloss), n - i);
  }
}

}  // namespace

const SoftmaxLoops LOCKSTEP_LOOPS_TABLE(Softmax) = {
    softmax, softmax_backward, cross_entropy, cross_entropy_backward, bce, bce_backward};

}  // namespace lockstep::cpu

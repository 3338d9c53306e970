#include "core/kernels/cpu/norm_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

// The mean is found relative to the first element, so that a constant row has variance 0 whatever
// its size; the second pass corrects both moments for the rounding of the first (Chan et al. 1983).
template <bool kResidual>
inline void layer_norm_with(float* out, float* sum, float* mean, float* rstd, const float* x,
                            const float* residual, const float* gamma, const float* beta, float eps,
                            int64_t n) {
  const int64_t whole = n - n % kWidth, rest = n - whole;
  const float* v = kResidual ? sum : x;
  const float first = kResidual ? x[0] + residual[0] : x[0];
  const Vec origin = set(first);
  Vec shifted{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    Vec a = load(x + i);
    if constexpr (kResidual) store(sum + i, a = a + load(residual + i));
    shifted += a - origin;
  }
  if (rest) {
    Vec a = load_n(x + whole, rest);
    if constexpr (kResidual) store_n(sum + whole, a = a + load_n(residual + whole, rest), rest);
    shifted += keep_n(a - origin, rest, Vec{});
  }
  const float inverse = 1.0f / static_cast<float>(n);
  const float middle = first + reduce_add(shifted) * inverse;
  const Vec centre = set(middle);

  Vec linear{}, square{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    const Vec d = load(v + i) - centre;
    linear += d;
    square = fma(d, d, square);
  }
  if (rest) {
    const Vec d = keep_n(load_n(v + whole, rest) - centre, rest, Vec{});
    linear += d;
    square = fma(d, d, square);
  }
  const float shift = reduce_add(linear) * inverse;
  const float variance = reduce_add(square) * inverse - shift * shift;
  const float r = 1.0f / __builtin_sqrtf((variance < 0 ? 0.0f : variance) + eps);
  *mean = middle + shift;
  *rstd = r;

  const Vec delta = set(shift), scale = set(r);
  const auto normalise = [&](Vec a, Vec g, Vec b) {
    return fma((a - centre - delta) * scale, g, b);
  };
  if (beta == nullptr) {
    for (int64_t i = 0; i < whole; i += kWidth)
      store(out + i, normalise(load(v + i), load(gamma + i), Vec{}));
    if (rest)
      store_n(out + whole, normalise(load_n(v + whole, rest), load_n(gamma + whole, rest), Vec{}),
              rest);
    return;
  }
  for (int64_t i = 0; i < whole; i += kWidth)
    store(out + i, normalise(load(v + i), load(gamma + i), load(beta + i)));
  if (rest)
    store_n(
        out + whole,
        normalise(load_n(v + whole, rest), load_n(gamma + whole, rest), load_n(beta + whole, rest)),
        rest);
}

void layer_norm(float* out, float* sum, float* mean, float* rstd, const float* x,
                const float* residual, const float* gamma, const float* beta, float eps,
                int64_t n) {
  if (residual != nullptr)
    layer_norm_with<true>(out, sum, mean, rstd, x, residual, gamma, beta, eps, n);
  else
    layer_norm_with<false>(out, sum, mean, rstd, x, residual, gamma, beta, eps, n);
}

void layer_norm_backward(float* dx, float* dgamma, float* dbeta, const float* dy, const float* dsum,
                         const float* x, float mean, float rstd, const float* gamma, int64_t n) {
  const int64_t whole = n - n % kWidth, rest = n - whole;
  const Vec m = set(mean), r = set(rstd);
  Vec plain{}, weighted{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    const Vec d = load(dy + i), xhat = (load(x + i) - m) * r, g = d * load(gamma + i);
    plain += g;
    weighted = fma(g, xhat, weighted);
    store(dgamma + i, fma(d, xhat, load(dgamma + i)));
    store(dbeta + i, load(dbeta + i) + d);
  }
  if (rest) {
    const float *d_at = dy + whole, *x_at = x + whole;
    const Vec d = load_n(d_at, rest), xhat = (load_n(x_at, rest) - m) * r,
              g = d * load_n(gamma + whole, rest);
    plain += g;  // 0 beyond the end, for d is
    weighted = fma(g, xhat, weighted);
    store_n(dgamma + whole, fma(d, xhat, load_n(dgamma + whole, rest)), rest);
    store_n(dbeta + whole, load_n(dbeta + whole, rest) + d, rest);
  }
  const float inverse = 1.0f / static_cast<float>(n);
  const Vec c1 = set(reduce_add(plain) * inverse), c2 = set(reduce_add(weighted) * inverse);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const auto get = [&](const float* p) {
      return left >= kWidth ? load(p + i) : load_n(p + i, left);
    };
    const Vec xhat = (get(x) - m) * r;
    Vec d = r * (fnma(xhat, c2, get(dy) * get(gamma)) - c1);
    if (dsum != nullptr) d += get(dsum);
    if (left >= kWidth)
      store(dx + i, d);
    else
      store_n(dx + i, d, left);
  }
}

}  // namespace

const NormLoops LOCKSTEP_LOOPS_TABLE(Norm) = {layer_norm, layer_norm_backward};

}  // namespace lockstep::cpu

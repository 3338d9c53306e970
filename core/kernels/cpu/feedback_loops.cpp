#include "core/kernels/cpu/feedback_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

inline IntVec larger(IntVec a, Vec v) {
  const IntVec bits = reinterpret_cast<IntVec>(v) & 0x7fffffff;
  return bits > a ? bits : a;
}
inline int32_t largest_of(IntVec v) {
  int32_t most = 0;
  for (int lane = 0; lane < kWidth; ++lane) most = v[lane] > most ? v[lane] : most;
  return most;
}

int32_t add(float* sum, const float* values, float factor, const float* residual, int64_t n) {
  IntVec most{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec v = load(values + i) * set(factor) + load(residual + i);
    store(sum + i, v);
    most = larger(most, v);
  }
  if (i < n) {
    const Vec v = load_n(values + i, n - i) * set(factor) + load_n(residual + i, n - i);
    store_n(sum + i, v, n - i);
    most = larger(most, keep_n(v, n - i, Vec{}));
  }
  return largest_of(most);
}

int32_t add_with_momentum(float* sum, float* next_velocity, const float* values, float factor,
                          const float* residual, const float* velocity, float momentum, int64_t n) {
  IntVec most{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec u = load(velocity + i) * set(momentum) + load(values + i) * set(factor);
    const Vec v = load(residual + i) + u;
    store(next_velocity + i, u);
    store(sum + i, v);
    most = larger(most, v);
  }
  if (i < n) {
    const int64_t rest = n - i;
    const Vec u =
        load_n(velocity + i, rest) * set(momentum) + load_n(values + i, rest) * set(factor);
    const Vec v = load_n(residual + i, rest) + u;
    store_n(next_velocity + i, u, rest);
    store_n(sum + i, v, rest);
    most = larger(most, keep_n(v, rest, Vec{}));
  }
  return largest_of(most);
}

int32_t largest(const float* x, int64_t n) {
  IntVec most{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) most = larger(most, load(x + i));
  if (i < n) most = larger(most, load_n(x + i, n - i));
  return largest_of(most);
}

// As many sums as the widest vectors have lanes, whatever the width, added up in order.
double squares(const float* x, int64_t n) {
  constexpr int kSums = 16, kHalf = kWidth / 2, kVectors = kSums / kHalf;
  DoubleVec sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int v = 0; v < kVectors; ++v) {
      const DoubleVec d = load_double(x + i + v * kHalf);
      sums[v] += d * d;
    }
  double total = 0;
  for (int v = 0; v < kVectors; ++v)
    for (int lane = 0; lane < kHalf; ++lane) total += sums[v][lane];
  for (; i < n; ++i) total += double{x[i]} * x[i];
  return total;
}

}  // namespace

const FeedbackLoops LOCKSTEP_LOOPS_TABLE(Feedback) = {add, add_with_momentum, largest, squares};

}  // namespace lockstep::cpu

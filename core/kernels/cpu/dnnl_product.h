#pragma once
#include <cstdint>

/// The one door to oneDNN's matmul: primitives are made once for each ProductKey and thread, and
/// executed with working memory from our allocator, so that any number of threads may multiply at
/// once without a lock. (oneDNN's own process-wide cache shares the generated code between
/// threads.)
namespace lockstep::cpu {

/// C[batch, m, n] (+)= A[batch, m, k] · B[batch, k, n] (+ bias[n]); each matrix by the steps, in
/// elements, from one batch member, row and column to the next.
struct ProductKey {
  struct Steps {
    int64_t batch, row, column;
    friend bool operator==(const Steps&, const Steps&) = default;
  };
  int64_t batch, m, n, k;
  Steps a, b, c;
  bool accumulate, bias;
  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

/// On the calling thread. All extents at least 1. Throws SystemError(device) with oneDNN's reason.
void product(const ProductKey& key, float* c, const float* a, const float* b, const float* bias);

}  // namespace lockstep::cpu

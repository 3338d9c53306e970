#include "distributed/compress/low_rank.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/elementwise.h"

namespace lockstep::distributed {
namespace {

// In four sums, which the compiler may keep in one register, always the same.
double dot(const float* a, const float* b, int64_t n) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; ++k) sums[k] += double{a[i + k]} * b[i + k];
  for (; i < n; ++i) sums[0] += double{a[i]} * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void subtract(float* row, const float* direction, double length, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>(row[i] - length * direction[i]);
}

// out = row · 1/length, in double: a length may be denormal.
void normalise(float* out, const float* row, double length, int64_t n) {
  const double factor = 1 / length;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(row[i] * factor);
}

}  // namespace

void orthonormalise(const Tensor& x) {
  constexpr double kDependent = 1e-6;
  const int64_t k = x.size(0), n = x.size(1);
  float* rows = x.mutable_data<float>();
  for (int64_t i = 0; i < k; ++i) {
    float* row = rows + i * n;
    const double before = std::sqrt(dot(row, row, n));
    double length = before;
    if (before > 0 && std::isfinite(before)) {
      normalise(row, row, before, n);
      for (int pass = 0; pass < 2; ++pass)
        for (int64_t j = 0; j < i; ++j) subtract(row, rows + j * n, dot(row, rows + j * n, n), n);
      length = std::sqrt(dot(row, row, n));
    }
    if (std::isfinite(before) && length > kDependent)
      normalise(row, row, length, n);
    else
      std::fill_n(row, n, 0.0f);
  }
}

void next_basis(const Tensor& basis, const Tensor& product, const NextBasis& random) {
  const int64_t k = product.size(0), n = product.size(1);
  const float* from = product.data<float>();
  float* to = basis.mutable_data<float>();
  for (int64_t i = 0; i < k; ++i) {
    const double length = std::sqrt(dot(from + i * n, from + i * n, n));
    if (length > 0) {
      normalise(to + i * n, from + i * n, length, n);
      continue;
    }
    kernel::uniform(basis.slice(i, i + 1), 1,
                    {.seed = random.seed,
                     .stream = RandomStream::low_rank,
                     .key = random.key,
                     .first = random.first + i * n});
    const double drawn = std::sqrt(dot(to + i * n, to + i * n, n));
    normalise(to + i * n, to + i * n, drawn > 0 ? drawn : 1, n);
  }
}

}  // namespace lockstep::distributed

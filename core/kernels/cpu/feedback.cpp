#include "core/kernels/feedback.h"

#include <atomic>
#include <bit>

#include "core/kernels/cpu/feedback_loops.h"
#include "core/kernels/cpu/host.h"

namespace lockstep::kernel {
namespace {

const cpu::FeedbackLoops& loops() {
  using namespace cpu;
  return LOCKSTEP_PICK_LOOPS(Feedback);
}

// The largest of what f(begin, end) says of the pieces of n elements.
template <class F>
float largest_of_pieces(size_t n, F f) {
  std::atomic<int32_t> most = 0;
  parallel_for(static_cast<int64_t>(n), cpu::kGrain, [&](int64_t begin, int64_t end) {
    const int32_t here = f(begin, end - begin);
    int32_t before = most.load(std::memory_order_relaxed);
    while (before < here && !most.compare_exchange_weak(before, here, std::memory_order_relaxed)) {
    }
  });
  return std::bit_cast<float>(most.load());
}

void expect_size(std::string_view what, size_t got, size_t expected) {
  check(got == expected, "[kernel.feedback] {}; expected {} elements, got {}", what, expected, got);
}

}  // namespace

float add_feedback(std::span<float> sum, std::span<const float> values, float factor,
                   std::span<const float> residual) {
  expect_size("values", values.size(), sum.size());
  expect_size("residual", residual.size(), sum.size());
  return largest_of_pieces(sum.size(), [&](int64_t at, int64_t n) {
    return loops().add(sum.data() + at, values.data() + at, factor, residual.data() + at, n);
  });
}

float add_feedback_with_momentum(std::span<float> sum, std::span<const float> values, float factor,
                                 std::span<const float> residual, const Momentum& momentum) {
  expect_size("values", values.size(), sum.size());
  expect_size("residual", residual.size(), sum.size());
  expect_size("velocity", momentum.velocity.size(), sum.size());
  expect_size("next_velocity", momentum.next_velocity.size(), sum.size());
  return largest_of_pieces(sum.size(), [&](int64_t at, int64_t n) {
    return loops().add_with_momentum(sum.data() + at, momentum.next_velocity.data() + at,
                                     values.data() + at, factor, residual.data() + at,
                                     momentum.velocity.data() + at, momentum.momentum, n);
  });
}

float largest_magnitude(std::span<const float> x) {
  return largest_of_pieces(
      x.size(), [&](int64_t at, int64_t n) { return loops().largest(x.data() + at, n); });
}

double squares_of(std::span<const float> x) {
  constexpr int64_t kBlock = 4 * cpu::kGrain;  // summed by itself, so that threads do not matter
  const auto n = static_cast<int64_t>(x.size()), blocks = (n + kBlock - 1) / kBlock;
  const cpu::Scratch<double> sums(blocks);
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      sums[b] = loops().squares(x.data() + b * kBlock, std::min(kBlock, n - b * kBlock));
  });
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += sums[b];
  return total;
}

}  // namespace lockstep::kernel

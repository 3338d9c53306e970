#include "apps/bench/measure.h"
#include "apps/bench/limits.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/matmul.h"
#include "core/parallel.h"

#include <fmt/format.h>

// What this machine can do at most. A limit is the best of all tries, not their median.
namespace lockstep::apps {
namespace {

template <class F>
double best_ms(int64_t repeats, F&& f) {
  const std::vector<double> times = times_ms(repeats, f);
  return *std::min_element(times.begin(), times.end());
}

void add_loop(Measurements& out, const PeakLoop& loop, int64_t repeats) {
  if (loop.run == nullptr) return;
  constexpr int64_t kRounds = 2'000'000;  // some 10 ms
  const int threads = thread_budget();
  std::vector<float> sums(static_cast<size_t>(threads));
  const double ms = best_ms(repeats, [&] {
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i)] = loop.run(kRounds);
    });
  });
  const double flops = loop.flops_per_round * kRounds * threads;
  out.push_back({fmt::format("peaks loop {}", loop.name), ms, {{"gflops", flops / ms * 1e-6}}});
}

// The fastest of some products of the shapes that training has, and a large square.
void add_matmul(Measurements& out, DType dtype, int64_t repeats) {
  const struct {
    int64_t n, k, m;
  } shapes[] = {{768, 128, 512}, {2048, 384, 1536}, {2048, 1536, 384}, {2048, 2048, 2048}};
  Measurement best;
  double most = 0;
  for (const auto& [n, k, m] : shapes) {
    // Few bits a number, so that wide and narrow types hold the same.
    const Tensor x = full({n, k}, 0.5, dtype), w = full({m, k}, -0.25, dtype);
    const Tensor y = Tensor::empty({n, m}, dtype);
    const double ms = best_ms(repeats, [&] { kernel::matmul(y, x, w, {.trans_b = true}); });
    const double gflops = 2.0 * static_cast<double>(n * k * m) / ms * 1e-6;
    if (gflops <= most) continue;
    most = gflops;
    best = {fmt::format("peaks matmul {} {}x{}x{}", dtype == DType::f32 ? "fp32" : "bf16", n, k, m),
            ms,
            {{"gflops", gflops}}};
  }
  out.push_back(std::move(best));
}

// Arrays as large as the 50 M parameters of the optimiser's contest: beyond every cache.
void add_memory(Measurements& out, int64_t repeats) {
  constexpr int64_t kElements = 50'000'000, kGrain = 1'000'000;
  const Tensor a = full({kElements}, 1), b = full({kElements}, 1), c = full({kElements}, 1),
               d = full({kElements}, 1);
  for (const MemoryLoop& loop : memory_loops()) {
    float *to = a.mutable_data<float>(), *second = b.mutable_data<float>(),
          *third = c.mutable_data<float>();
    const float* from = d.data<float>();
    const double ms = best_ms(repeats, [&] {
      parallel_for(kElements, kGrain, [&](int64_t begin, int64_t end) {
        loop.run(to + begin, second + begin, third + begin, from + begin, end - begin);
      });
    });
    const double bytes = static_cast<double>(loop.bytes_per_element) * kElements;
    out.push_back({fmt::format("peaks {}", loop.name), ms, {{"gb_per_s", bytes / ms * 1e-6}}});
  }
}

}  // namespace

Measurements bench_peaks(const BenchOptions& options) {
  Measurements out;
  add_loop(out, fp32_peak_loop(), options.repeats);
  add_matmul(out, DType::f32, options.repeats);
  add_loop(out, bf16_peak_loop(), options.repeats);
  add_matmul(out, DType::bf16, options.repeats);
  add_memory(out, options.repeats);
  return out;
}

}  // namespace lockstep::apps

#pragma once
#include "apps/training/precision_options.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace lockstep::apps {

/// One line of `lockstep bench`.
struct Measurement {
  std::string name;                                                   ///< "matmul 768x128x384"
  double ms = 0;                                                      ///< median
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();  ///< gflops, tokens_per_s, …
};
using Measurements = std::vector<Measurement>;

struct BenchOptions {
  int64_t repeats = 20, threads = 1, ranks = 2;
  std::string preset = "4x128";
  PrecisionOptions precision;
};

/// Runs f a few times to warm up and `repeats` times on the clock; the median in milliseconds.
template <class F>
double median_ms(int64_t repeats, F&& f) {
  for (int i = 0; i < 3; ++i) f();
  std::vector<double> times;
  for (int64_t i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

Measurements bench_matmul(const BenchOptions& options);
Measurements bench_attention(const BenchOptions& options);
Measurements bench_optimizer(const BenchOptions& options);
Measurements bench_all_reduce(const BenchOptions& options);
Measurements bench_step(const BenchOptions& options);

}  // namespace lockstep::apps

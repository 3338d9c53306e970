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
  int64_t elements = 10'000'000;  ///< parameters of `optimizer`
  std::string preset = "4x128";
  int64_t tables = 26, rows = 100'000;  ///< of `recommender`
  std::string table_optimizer = "sgd";
  PrecisionOptions precision;
};

inline constexpr int kWarmUp = 3;  ///< calls before the clock starts

/// Milliseconds of each of `repeats` calls of f, after kWarmUp others. Asks for its memory first.
template <class F>
std::vector<double> times_ms(int64_t repeats, F&& f) {
  std::vector<double> times(static_cast<size_t>(repeats));
  for (int i = 0; i < kWarmUp; ++i) f();
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const auto end = std::chrono::steady_clock::now();
    time = std::chrono::duration<double, std::milli>(end - begin).count();
  }
  return times;
}

/// The middle value, of an even number the mean of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

template <class F>
double median_ms(int64_t repeats, F&& f) {
  return median(times_ms(repeats, f));
}

Measurements bench_matmul(const BenchOptions& options);
Measurements bench_attention(const BenchOptions& options);
Measurements bench_optimizer(const BenchOptions& options);
Measurements bench_all_reduce(const BenchOptions& options);
Measurements bench_step(const BenchOptions& options);
Measurements bench_probe(const BenchOptions& options);
Measurements bench_parallel(const BenchOptions& options);
Measurements bench_virtual(const BenchOptions& options);
Measurements bench_recommender(const BenchOptions& options);
Measurements bench_vision(const BenchOptions& options);
Measurements bench_embedding(const BenchOptions& options);
Measurements bench_peaks(const BenchOptions& options);

}  // namespace lockstep::apps

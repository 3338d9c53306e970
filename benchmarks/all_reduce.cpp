// All-reduce of f32 among threads. `bytes_per_second` is payload over time, as in the peers'
// scripts.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "distributed/comm/launch.h"

namespace lockstep::distributed {
namespace {

// Seconds of one all-reduce: `rounds` of them in a row, timed by rank 0.
double seconds_of_one(int ranks, int64_t bytes, int rounds) {
  double seconds = 0;
  run_ranks(ranks, [&](Communicator& comm) {
    const Tensor x = zeros({bytes / 4});
    for (int i = 0; i < 3; ++i) comm.all_reduce(x)->wait();
    comm.barrier();
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) comm.all_reduce(x)->wait();
    if (comm.rank() == 0)
      seconds = std::chrono::duration<double>(Clock::now() - start).count() / rounds;
  });
  return seconds;
}

void all_reduce(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const int64_t bytes = state.range(1);
  const int rounds = static_cast<int>(std::clamp<int64_t>((64 << 20) / bytes, 5, 5000));
  for ([[maybe_unused]] auto _ : state)
    state.SetIterationTime(seconds_of_one(ranks, bytes, rounds));
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(all_reduce)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2}, {4 << 10, 256 << 10, 4 << 20, 40 << 20}})
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::distributed

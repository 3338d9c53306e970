#include "core/parallel.h"

#include "core/check.h"
#include "core/team.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <thread>

namespace lockstep {
namespace {

thread_local int budget = 0;  // 0: not set yet, all cores

}  // namespace

int available_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

int thread_budget() {
  if (budget == 0) budget = available_cores();
  return budget;
}

ThreadBudget::ThreadBudget(int threads) : before_(thread_budget()) {
  check(threads >= 1, "[core.threads] expected at least 1 thread, got {}", threads);
  budget = threads;
}

ThreadBudget::~ThreadBudget() { budget = before_; }

void parallel_ranges(int64_t n, int64_t grain, void* context,
                     void (*f)(void*, int64_t, int64_t, int)) {
  if (n <= 0) return;
  const int pieces = parallel_pieces(n, grain);
  if (pieces == 1) return f(context, 0, n, 0);
  auto run = [&](int piece) { f(context, n * piece / pieces, n * (piece + 1) / pieces, piece); };
  run_pieces(pieces, &run,
             [](void* call, int piece) { (*static_cast<decltype(run)*>(call))(piece); });
}

}  // namespace lockstep

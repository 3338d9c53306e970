#include "core/parallel.h"

#include "core/check.h"

#if defined(_OPENMP)
#include <omp.h>
#else
// Built without OpenMP (for the thread sanitizer), but oneDNN may bring its run-time along.
extern "C" __attribute__((weak)) void omp_set_num_threads(int);
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#include <thread>

namespace lockstep {
namespace {

thread_local int budget = 0;  // 0: not set yet, all cores

// A setting of the calling thread; oneDNN reads it.
void tell_openmp(int threads) {
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#else
  (void)threads;
  if (omp_set_num_threads) omp_set_num_threads(1);
#endif
}

}  // namespace

int available_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

int thread_budget() {
  if (budget == 0) {
    budget = available_cores();
    tell_openmp(budget);
  }
  return budget;
}

ThreadBudget::ThreadBudget(int threads) : before_(thread_budget()) {
  check(threads >= 1, "[core.threads] expected at least 1 thread, got {}", threads);
  budget = threads;
  tell_openmp(threads);
}

ThreadBudget::~ThreadBudget() {
  budget = before_;
  tell_openmp(before_);
}

void parallel_ranges(int64_t n, int64_t grain, void* context,
                     void (*f)(void*, int64_t, int64_t, int)) {
  if (n <= 0) return;
  const int pieces = parallel_pieces(n, grain);
  const auto run = [&](int piece) {
    f(context, n * piece / pieces, n * (piece + 1) / pieces, piece);
  };
#if defined(_OPENMP)
  if (pieces > 1) {
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
    for (int piece = 0; piece < pieces; ++piece) run(piece);
    return;
  }
#endif
  for (int piece = 0; piece < pieces; ++piece) run(piece);
}

}  // namespace lockstep

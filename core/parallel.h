#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace lockstep {

/// Cores this process may use: its affinity mask.
int available_cores();

/// For the inside of a loop that waits for another thread to write.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Threads the calling thread may use for one kernel. One budget a rank: where several ranks are
/// threads of one process each has a budget of 1 and no team is ever started.
int thread_budget();

/// Sets the calling thread's budget while it lives.
class ThreadBudget {
 public:
  explicit ThreadBudget(int threads);
  ~ThreadBudget();
  ThreadBudget(const ThreadBudget&) = delete;
  ThreadBudget& operator=(const ThreadBudget&) = delete;

 private:
  int before_;
};

/// Calls f(context, begin, end) on contiguous pieces of [0, n). The pieces depend on n, `grain` and
/// the budget only, so results repeat bit for bit. See Note [A team of our own] in core/team.h.
void parallel_ranges(int64_t n, int64_t grain, void* context,
                     void (*f)(void*, int64_t, int64_t, int));

/// f(begin, end) or f(begin, end, piece): `piece` counts the pieces from 0, at most
/// thread_budget(). Below `grain` elements a piece is not worth a thread.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  using Callable = std::remove_reference_t<F>;
  parallel_ranges(n, grain, const_cast<void*>(static_cast<const void*>(&f)),
                  [](void* context, int64_t begin, int64_t end, int piece) {
                    auto& call = *static_cast<Callable*>(context);
                    if constexpr (std::is_invocable_v<Callable&, int64_t, int64_t, int>)
                      call(begin, end, piece);
                    else
                      call(begin, end);
                  });
}

/// How many pieces parallel_for makes of n.
inline int parallel_pieces(int64_t n, int64_t grain) {
  return static_cast<int>(std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, thread_budget()));
}

}  // namespace lockstep

#include "core/team.h"

#include "core/parallel.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

enum State : uint32_t { kIdle, kPosted, kRunning, kDone };

// Where the caller and one member meet.
struct alignas(64) Seat {
  std::atomic<uint32_t> state{kIdle};
  int piece = 0;
  std::exception_ptr error;
};

struct Job {
  void* context = nullptr;
  void (*run)(void*, int) = nullptr;
};

// How long to spin before sleeping, for one who waits again and again: see Note [A team of our
// own].
class Patience {
 public:
  // Spins for a while, then sleeps, until the state is none that `waiting` accepts.
  template <class Waiting>
  uint32_t await(const std::atomic<uint32_t>& state, Waiting waiting) {
    uint32_t now = state.load(std::memory_order_acquire);
    if (!waiting(now)) return now;
    const auto begin = Clock::now();
    Clock::duration waited{};
    do {
      for (int i = 0; i < 32 && waiting(now); ++i) {
        pause_briefly();
        now = state.load(std::memory_order_acquire);
      }
      waited = Clock::now() - begin;
    } while (waiting(now) && waited < spin_);
    while (waiting(now)) {
      state.wait(now, std::memory_order_acquire);
      now = state.load(std::memory_order_acquire);
      waited = Clock::now() - begin;
    }
    if (waited > kShort) spin_ = waited < kLong ? kLong : kShort;
    return now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kShort = std::chrono::microseconds(20);
  static constexpr Clock::duration kLong = std::chrono::microseconds(200);
  Clock::duration spin_ = kShort;
};

thread_local bool inside_piece = false;

void run_piece(const Job& job, Seat& seat) {
  inside_piece = true;
  try {
    job.run(job.context, seat.piece);
  } catch (...) {
    seat.error = std::current_exception();
  }
  inside_piece = false;
}

class Team {
 public:
  // False when another thread has the team.
  bool run(int pieces, const Job& job) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    job_ = job;
    const int helped = std::min(pieces - 1, grow(pieces - 1));
    for (int i = 0; i < helped; ++i) {
      seats_[i]->piece = i + 1;
      seats_[i]->state.store(kPosted, std::memory_order_release);
      seats_[i]->state.notify_one();
    }
    Seat mine;
    std::exception_ptr error;
    const auto keep_first = [&](Seat& seat) {
      if (seat.error && !error) error = seat.error;
      seat.error = nullptr;
    };
    run_piece(job_, mine);
    keep_first(mine);
    for (int i = 0; i < helped; ++i) {
      Seat& seat = *seats_[i];
      uint32_t posted = kPosted;
      if (seat.state.compare_exchange_strong(posted, kRunning, std::memory_order_acquire))
        run_piece(job_, seat);  // the member has not begun
      else
        patience_.await(seat.state, [](uint32_t state) { return state != kDone; });
      seat.state.store(kIdle, std::memory_order_release);
      keep_first(seat);
    }
    for (mine.piece = helped + 1; mine.piece < pieces; ++mine.piece) {  // no thread was to be had
      run_piece(job_, mine);
      keep_first(mine);
    }
    if (error) std::rethrow_exception(error);
    return true;
  }

 private:
  // Makes the team at least `members` strong, if the system gives that many threads.
  int grow(int members) {
    while (static_cast<int>(seats_.size()) < members) {
      auto seat = std::make_unique<Seat>();
      try {
        std::thread([this, s = seat.get()] { serve(*s); }).detach();
      } catch (const std::system_error&) {
        break;
      }
      seats_.push_back(std::move(seat));
    }
    return static_cast<int>(seats_.size());
  }

  void serve(Seat& seat) {
    Patience patience;
    for (;;) {
      patience.await(seat.state, [](uint32_t state) { return state != kPosted; });
      uint32_t posted = kPosted;
      if (!seat.state.compare_exchange_strong(posted, kRunning, std::memory_order_acquire))
        continue;
      run_piece(job_, seat);
      seat.state.store(kDone, std::memory_order_release);
      seat.state.notify_one();
    }
  }

  std::mutex mutex_;
  Job job_;
  Patience patience_;                         // of whoever has the team
  std::vector<std::unique_ptr<Seat>> seats_;  // addresses stay
};

}  // namespace

void run_pieces(int pieces, void* context, void (*run)(void*, int)) {
  static Team& team = *new Team;  // its threads outlive main
  const bool shared = pieces > 1 && !inside_piece && team.run(pieces, {context, run});
  if (shared) return;
  for (int piece = 0; piece < pieces; ++piece) run(context, piece);
}

}  // namespace lockstep

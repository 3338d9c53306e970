#pragma once
#include "core/check.h"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::data {

/// Fills slots ahead of their use on a thread of its own and serves them in order. The thread
/// sleeps while all slots are full; the consumer sleeps while none is.
///
/// A served slot stays untouched until the call of next() after the next one, so of n slots n - 2
/// are filled ahead. When `fill` throws, the slots filled before are served first and then every
/// next() throws that exception. One consumer thread.
template <class Slot>
class Prefetcher {
 public:
  /// `fill` gets the slots in turn, for ever, on the prefetching thread.
  Prefetcher(std::vector<Slot> slots, std::function<void(Slot&)> fill)
      : slots_(std::move(slots)), fill_(std::move(fill)) {
    check(slots_.size() >= 3, "[data.prefetch] expected at least 3 slots, got {}", slots_.size());
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      throw SystemError(
          Fault::device,
          fmt::format("[data.prefetch] a thread could not be started: {}", e.code().message()));
    }
  }
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  const Slot& next() {
    std::unique_lock lock(mutex_);
    if (served_ > 0) released_ = served_ - 1;  // all but the one served last
    changed_.notify_all();
    changed_.wait(lock, [&] { return filled_ > served_ || error_ != nullptr; });
    if (filled_ == served_) std::rethrow_exception(error_);
    return slots_[served_++ % slots_.size()];
  }

 private:
  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || filled_ < released_ + slots_.size(); });
        if (stopping_) return;
      }
      std::exception_ptr error;
      try {
        fill_(slots_[filled_ % slots_.size()]);  // only this thread changes filled_
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        error != nullptr ? void(error_ = error) : void(++filled_);
      }
      changed_.notify_all();
      if (error != nullptr) return;
    }
  }

  std::vector<Slot> slots_;
  std::function<void(Slot&)> fill_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t filled_ = 0, served_ = 0, released_ = 0;  // slots so far; filled - released <= slots
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::data

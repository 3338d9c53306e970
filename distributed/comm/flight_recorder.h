#pragma once
#include <array>
#include <string>

#include "distributed/comm/options.h"
#include "distributed/comm/work.h"

namespace lockstep::distributed {

/// The last operations of one rank, for the question "where was it when…". Never allocates.
class FlightRecorder {
 public:
  static constexpr int kKept = 64;
  struct Entry {
    int64_t sequence = 0;  ///< number of the operation on its communicator, from 1
    Verb verb = Verb::barrier;
    int64_t bytes = 0;
    OpTag tag;
    Phase phase;  ///< when it was posted
    Clock::time_point posted, finished;
    enum class State { posted, finished, failed } state = State::posted;
  };

  /// Adds the next operation, forgetting the oldest beyond kKept; its sequence number.
  int64_t post(Verb verb, int64_t bytes, OpTag tag, Phase phase, Clock::time_point now);
  void finish(int64_t sequence, Entry::State state, Clock::time_point now);

  int64_t posted() const { return posted_; }  ///< operations so far
  /// The kept entry of this sequence number; null when it is not kept.
  const Entry* find(int64_t sequence) const;
  /// One line an operation, oldest first: number, verb, size, tag, phase, state, milliseconds.
  std::string text() const;

 private:
  std::array<Entry, kKept> entries_;
  int64_t posted_ = 0;
};

/// "all_reduce #1841 (bucket 3, 4.0 MiB)"
std::string describe(Verb verb, int64_t sequence, OpTag tag, int64_t bytes);
/// "backward of step 612"; "" for none.
std::string describe(const Phase& phase);

}  // namespace lockstep::distributed

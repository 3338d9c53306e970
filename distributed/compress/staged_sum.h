#pragma once
#include <memory>
#include <vector>

#include "distributed/comm/work.h"

namespace lockstep::distributed {

class StageQueue;

/// A sum that takes several collectives, one after the other.
class StagedSum : public Work {
 public:
  /// Whether a stage is left that was not posted yet.
  bool more() const { return next_ < stages_; }
  /// Waits for the stage on its way and posts the next one. False: not by `until`.
  bool advance(const Clock::time_point* until);

 protected:
  StagedSum(std::shared_ptr<StageQueue> queue, int stages)
      : queue_(std::move(queue)), stages_(stages) {}
  /// Posts a stage (from 0), when all before it have finished.
  virtual WorkPtr post(int stage) = 0;
  /// When the last has.
  virtual void finish() = 0;

  bool poll() override;
  bool block(const Clock::time_point* until) override;

 private:
  std::shared_ptr<StageQueue> queue_;
  int stages_, next_ = 0;
  WorkPtr inner_;
};

/// Keeps the order of collectives that of the program: a stage is posted when a sum begins kLag
/// sums later, or when the first of the open ones is waited for; never because something happened
/// to be done.
class StageQueue {
 public:
  static constexpr int64_t kLag = 2;
  /// Posts the first stage of one, and the next one of those that began kLag sums before.
  void start(const std::shared_ptr<StagedSum>& sum);
  /// Posts all that is left, stage by stage. False: not by `until`; it goes on from there.
  bool drain(const Clock::time_point* until = nullptr);
  /// Lets go of what will not be waited for.
  void clear() { open_.clear(); }

 private:
  struct Open {
    std::shared_ptr<StagedSum> sum;
    int64_t number;
  };
  void drop_posted();

  std::vector<Open> open_;
  int64_t started_ = 0;
  bool draining_ = false;
  size_t at_ = 0;  // of open_, while draining
};

}  // namespace lockstep::distributed

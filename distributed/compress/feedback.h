#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/state_io.h"

namespace lockstep::distributed {

/// What was left out of messages so far and waits to be sent: an f32 for each element of a flat
/// buffer, in units of unscaled gradients, whatever the loss scale is. There are two copies, so
/// that a step which is skipped leaves no trace: a message reads now() and writes next(), and
/// resolve() takes over what was written, or forgets it.
class Feedback {
 public:
  /// Zeros.
  explicit Feedback(int64_t numel);

  /// Of elements [begin, end).
  std::span<const float> now(int64_t begin, int64_t end) const;
  /// All of it will be written before resolve(). A step's ranges are equal, or do not overlap.
  std::span<float> next(int64_t begin, int64_t end);
  void resolve(bool applied);

  /// Adds [begin, end) to another's and leaves zeros. Takes effect at once.
  void move_to(Feedback& other, int64_t begin, int64_t end);
  const Tensor& residual() const { return now_; }
  /// Sums over ranks are what counts; between steps.
  void state(StateIo& io, const std::string& name);

 private:
  struct Range {
    int64_t begin, end;
  };
  Tensor now_, next_;
  std::vector<Range> written_;
};

}  // namespace lockstep::distributed

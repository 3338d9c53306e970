#pragma once

namespace lockstep::autograd {

/// Whether operations called by this thread record.
bool recording();

/// Switches recording off in this thread while it lives.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep::autograd

#pragma once
#include <memory>

#include "data/dataset.h"
#include "data/sampler.h"

namespace lockstep::data {

/// Serves a rank's micro-batches in order, prepared ahead by one thread of its own. Batches are
/// reused: one is valid until the call after next.
class Loader {
 public:
  struct Options { int64_t first_step = 0; int ahead = 4; };
  Loader(std::shared_ptr<const TokenWindows> windows, const SamplerOptions& sampler, Options options);
  ~Loader();
  /// The next micro-batch; rows() may be 0 in the short last step of an epoch. An error in the
  /// thread is thrown here.
  const TokenBatch& next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data

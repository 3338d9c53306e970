#pragma once
#include "data/dataset.h"
#include "data/sampler.h"

#include <memory>

namespace lockstep::data {

/// Serves a rank's micro-batches in order, step after step and epoch after epoch, prepared ahead by
/// one thread of its own. Starting at any step gives what an uninterrupted loader would give from
/// there on. Batches are reused: one is valid until the call after next.
class Loader {
 public:
  struct Options {
    int64_t first_step = 0;
    int ahead = 4;  ///< micro-batches
  };
  /// The sampler's samples number the windows, so sampler.samples <= windows->count(). UsageError
  /// without samples.
  Loader(std::shared_ptr<const TokenWindows> windows, const SamplerOptions& sampler,
         Options options);
  ~Loader();
  /// The next micro-batch; rows() may be 0 in the short last step of an epoch. An error in the
  /// thread is thrown here.
  const TokenBatch& next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data

#pragma once
#include "data/clicks.h"

#include <memory>

namespace lockstep::data {

/// Serves a rank's micro-batches of clicks in order, step after step and epoch after epoch,
/// prepared ahead by one thread of its own. Starting at any step gives what an uninterrupted loader
/// would give from there on. Batches are reused: one is valid until the call after next.
class ClickLoader {
 public:
  struct Options {
    int64_t first_step = 0;
    int ahead = 4;  ///< micro-batches
    /// That prepare a batch. More than one compete with the kernels of the training thread.
    int threads = 1;
  };
  /// 1 <= sampler.samples <= source->samples().
  ClickLoader(std::shared_ptr<const ClickSource> source, const SamplerOptions& sampler,
              Options options);
  ~ClickLoader();
  /// The next micro-batch; samples() may be 0 in the short last step of an epoch, and smaller than
  /// asked for where malformed rows were left out. An error in the thread is thrown here.
  const ClickBatch& next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data

#pragma once
#include <cstdint>
#include <vector>

#include "core/random.h"

namespace lockstep::data {

/// Which samples a rank sees, and when. Step s of an epoch uses samples [s·G, (s+1)·G) of that
/// epoch's permutation, G being the global batch, dealt in contiguous pieces to micro-batches and
/// within those to ranks… so that any split of the same G sees the same samples. A pure function of
/// its arguments: nothing to save but the step.
struct SamplerOptions {
  int64_t samples = 0;       ///< of the data set
  int64_t global_batch = 1;  ///< = ranks · micro_batches · batch
  int ranks = 1, rank = 0;
  int micro_batches = 1;
  uint64_t seed = 0;
  enum class Order { shuffled, sequential } order = Order::shuffled;
};
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  int64_t steps_per_epoch() const;  ///< the last one may be short
  /// Sample numbers of this rank for a micro-batch of a global step (steps count on over epochs);
  /// may be empty in a short last step. `first` receives the position of the first within the
  /// step's global batch.
  void micro_batch(int64_t step, int micro, std::vector<int64_t>& samples, int64_t& first) const;

 private:
  SamplerOptions options_;
};

}  // namespace lockstep::data

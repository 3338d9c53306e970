#pragma once
#include "core/random.h"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Which samples a rank sees, and when.
///
/// Step s of an epoch uses samples [s·G, (s+1)·G) of that epoch's permutation, G being the global
/// batch (the last step of an epoch may have fewer). They are dealt in contiguous pieces: rank r's
/// micro-batch m is piece r·M + m of R·M. So rank r as a whole sees piece r of R however many
/// micro-batches it works in, and rank r of N sees exactly what micro-batch r of one rank with N
/// micro-batches sees. Pieces differ by at most one sample, the longer ones spread evenly, piece 0
/// never the shorter one; in a short step some may be empty.
///
/// A pure function of its arguments: there is nothing to save but the step. The same on all ranks
/// but for `rank`; seeds must agree.
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
  /// UsageError for counts below 1 (samples: below 0) and ranks outside 0 … ranks - 1.
  explicit Sampler(const SamplerOptions& options);
  /// ⌈samples / global_batch⌉; 0 without samples.
  int64_t steps_per_epoch() const;
  /// Samples of all ranks in a global step: global_batch, or fewer in the last step of an epoch.
  int64_t step_samples(int64_t step) const;
  /// The most samples that micro_batch() ever gives.
  int64_t largest_micro_batch() const;
  /// Sample numbers of this rank for a micro-batch of a global step (steps count on over epochs);
  /// may be empty in a short last step, and always is without samples. `first` receives the
  /// position of the first within the step's global batch.
  void micro_batch(int64_t step, int micro, std::vector<int64_t>& samples, int64_t& first) const;

 private:
  SamplerOptions options_;
};

/// A rank's micro-batches one after the other, step after step.
class SampleCursor {
 public:
  /// From the first micro-batch of `first_step` on, which is at least 0.
  SampleCursor(const SamplerOptions& options, int64_t first_step);
  struct MicroBatch {
    std::span<const int64_t> samples;  ///< good until the next call
    int64_t step, first_sample;        ///< position of the first within the step's global batch
  };
  MicroBatch next();
  const Sampler& sampler() const { return sampler_; }

 private:
  Sampler sampler_;
  int micro_batches_, micro_ = 0;
  int64_t step_;
  std::vector<int64_t> samples_;
};

/// The part of a data set of `samples` that one rank evaluates: positions [begin, end).
struct Shard {
  int64_t begin = 0, end = 0;
  int64_t samples = 0;
  int64_t count() const { return end - begin; }
  /// Sample number of position begin + i; padded positions wrap around.
  int64_t sample(int64_t i) const { return (begin + i) % samples; }
};
/// exact: every sample is on exactly one rank, counts differ by at most one, and a mean over
/// samples is right. padded: every rank has ⌈samples / ranks⌉, the first samples being used again,
/// for loops that must run equally often on all ranks.
enum class Sharding { exact, padded };
/// UsageError for ranks < 1, samples < 0 and ranks outside 0 … ranks - 1.
Shard shard(int64_t samples, int ranks, int rank, Sharding sharding);

}  // namespace lockstep::data

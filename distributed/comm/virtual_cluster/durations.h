#pragma once
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "distributed/comm/virtual_cluster/cluster.h"

namespace lockstep::distributed::virtual_cluster {

enum class Pass { forward, backward };

/// How long every rank computes on each of its micro-batches: a pure function of (cluster, seed,
/// rank, micro-batch, pass), whatever is asked for first and however many ranks there are.
///
/// A micro-batch takes compute · factor(rank) · X · periodic, a third of it forward and two thirds
/// backward (a backward pass has two matrix products for each one of forward; Kaplan et al. 2020,
/// arXiv:2001.08361, section 2.1). X and the slow-down are drawn once and hold for both passes, so
/// that a micro-batch as a whole follows the law. A pause comes on top, at the start of forward,
/// and is not multiplied by anything.
class Durations {
 public:
  /// UsageError where the cluster has no `compute` yet, or slow ranks that are not there.
  Durations(const Cluster& cluster, int ranks, uint64_t seed);

  /// `micro` counts the micro-batches of this rank from 0, over the whole run.
  double seconds(int rank, int64_t micro, Pass pass) const;

 private:
  struct Rank {
    Random random;
    double factor;
    int64_t offset;  // in its period
  };
  double random_factor(const Rank& rank, int64_t micro) const;

  double compute_;
  Jitter jitter_;
  std::vector<Rank> ranks_;
};

}  // namespace lockstep::distributed::virtual_cluster

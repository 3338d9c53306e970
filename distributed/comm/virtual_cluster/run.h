#pragma once
#include <vector>

#include "distributed/comm/virtual_cluster/cluster.h"
#include "distributed/comm/virtual_cluster/timeline.h"

namespace lockstep::distributed::virtual_cluster {

/// A run on a modelled cluster: given to run_ranks in CommOptions, and what is known about its time
/// afterwards. A rank may read its own steps while it runs.
struct Run {
  Run(const Cluster& modelled, int ranks, uint64_t random_seed)
      : cluster(modelled), seed(random_seed), timeline(ranks), steps(static_cast<size_t>(ranks)) {}

  Cluster cluster;
  uint64_t seed;
  int cores = 0;  ///< how many ranks compute at once; 0: one a core
  Timeline timeline;
  std::vector<std::vector<StepTimes>> steps;  ///< of each rank
};

}  // namespace lockstep::distributed::virtual_cluster

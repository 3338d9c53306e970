#pragma once
#include <functional>
#include <memory>

#include "distributed/comm/launch.h"
#include "distributed/comm/threads/group.h"

namespace lockstep::distributed::threads {

/// Runs the function on a thread for each rank, with a thread budget of 1; a single rank runs on
/// the calling thread with its budget. `connect` makes a rank's backend, on its thread. `failed`
/// is told, besides the group, of a failure that ends all ranks before they could be told
/// themselves. Throws the root cause once all have ended; see run_ranks.
void run_rank_threads(int ranks, Group& group,
                      const std::function<std::unique_ptr<CommBackend>(int rank)>& connect,
                      const std::function<void(const Failure&)>& failed,
                      const RankFunction& function);

}  // namespace lockstep::distributed::threads

#pragma once
#include <functional>
#include <vector>

#include "distributed/comm/virtual_cluster/durations.h"

/// Ranks whose computing is a sleep: real time and real synchronisation, on however few cores.
namespace lockstep::apps {

/// Seconds that each of `steps` steps takes, in which rank r sleeps for seconds(r, step) and then
/// all-reduces 1000 numbers with the others. As rank 0 sees it; the first step starts together.
std::vector<double> sleep_together(int ranks, int64_t steps,
                                   const std::function<double(int rank, int64_t step)>& seconds);

/// The same on paper: the slowest of the ranks, step by step.
std::vector<double> slowest(int ranks, int64_t steps,
                            const distributed::virtual_cluster::Durations& durations);
/// A micro-batch, forward and backward.
double micro_batch(const distributed::virtual_cluster::Durations& durations, int rank,
                   int64_t micro);

}  // namespace lockstep::apps

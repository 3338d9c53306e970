#pragma once
#include "distributed/comm/communicator.h"

namespace lockstep::distributed {

/// Σ over ranks, added in rank order in double, so that all ranks get the same bits. For metrics: a
/// mean over samples is the sum of losses over the sum of weights, whatever each rank had.
double sum_over_ranks(Communicator& comm, double value);
/// The largest; NaN where a rank has one.
double max_over_ranks(Communicator& comm, double value);

}  // namespace lockstep::distributed

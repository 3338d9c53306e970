#pragma once
#include <span>
#include <vector>

#include "distributed/comm/work.h"
#include "optim/flat_params.h"

namespace lockstep::distributed {

/// A range of the flat gradient that travels as one: whole parameters, in the order in which
/// backward finishes them.
struct GradientBucket {
  int index = 0;
  optim::FlatView view;                 ///< parameters and gradients of the range
  int first_slice = 0, last_slice = 0;  ///< [first, last) in FlatParams::slices()
  WorkPtr work;  ///< set by the strategy's on_bucket; the reducer waits for it
  int64_t bytes() const { return view.grad.bytes(); }
};

/// Cuts the flat buffer at parameter borders: a bucket ends as soon as it holds `limit` bytes. The
/// first may have a smaller limit, so that the first reduction starts early in backward.
std::vector<GradientBucket> make_buckets(const optim::FlatParams& params, int64_t limit,
                                         int64_t first_limit);

/// The share of a backward pass after which each bucket is complete: that of its elements and those
/// before it, as it is for matrix products over equally many rows. The last is 1.
std::vector<double> ready_shares(std::span<const GradientBucket> buckets);

}  // namespace lockstep::distributed

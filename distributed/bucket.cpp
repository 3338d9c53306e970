#include "distributed/bucket.h"

#include "core/check.h"

namespace lockstep::distributed {

std::vector<GradientBucket> make_buckets(const optim::FlatParams& params, int64_t limit,
                                         int64_t first_limit) {
  check(limit > 0 && first_limit > 0, "[reducer.buckets] expected more than 0 bytes, got {} and {}",
        limit, first_limit);
  const std::span<const optim::ParamSlice> slices = params.slices();
  std::vector<GradientBucket> buckets;
  int first = 0;
  for (int i = 0; i < static_cast<int>(slices.size()); ++i) {
    const int64_t begin = slices[first].begin, end = slices[i].end;
    const int64_t bytes = checked_mul(end - begin, size_of(params.all().grad.dtype()));
    const bool last = i + 1 == static_cast<int>(slices.size());
    if (!last && bytes < (buckets.empty() ? first_limit : limit)) continue;
    GradientBucket bucket;
    bucket.index = static_cast<int>(buckets.size());
    bucket.view = params.all().range(begin, end);
    bucket.first_slice = first;
    bucket.last_slice = i + 1;
    buckets.push_back(std::move(bucket));
    first = i + 1;
  }
  return buckets;
}

std::vector<double> ready_shares(std::span<const GradientBucket> buckets) {
  int64_t all = 0, so_far = 0;
  for (const GradientBucket& bucket : buckets) all += bucket.view.numel();
  std::vector<double> shares;
  shares.reserve(buckets.size());
  for (const GradientBucket& bucket : buckets) {
    so_far += bucket.view.numel();
    shares.push_back(so_far == all ? 1 : static_cast<double>(so_far) / static_cast<double>(all));
  }
  return shares;
}

}  // namespace lockstep::distributed

#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "distributed/strategy_report.h"

namespace lockstep::distributed {

/// How stale row updates were: a row's staleness is how many updates of it others have made since
/// it was fetched. One of 1 or more is a collision.
struct RowUpdates {
  static constexpr int64_t kBins = 257;
  int64_t pushes = 0;
  /// staleness[t]: row updates; the last: as many or more.
  std::vector<int64_t> staleness = std::vector<int64_t>(kBins);

  void add(uint32_t stale) { ++staleness[std::min<uint32_t>(stale, kBins - 1)]; }
  int64_t rows() const {
    int64_t sum = 0;
    for (const int64_t count : staleness) sum += count;
    return sum;
  }
  void report(StrategyReport& report) const {
    const auto all = static_cast<double>(rows());
    report.add("collision_rate", all == 0 ? 0 : (all - static_cast<double>(staleness[0])) / all);
    report.add("row_staleness", staleness, kBins);
  }
};

}  // namespace lockstep::distributed

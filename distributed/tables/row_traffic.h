#pragma once
#include "distributed/strategy_report.h"

namespace lockstep::distributed {

/// Rows that a rank's windows looked up, and what travelled because of them.
struct RowTraffic {
  int64_t windows = 0;    ///< whose rows were counted
  int64_t rows = 0;       ///< unique in their window
  int64_t exchanges = 0;  ///< whose bytes were counted
  double bytes = 0;       ///< of rows and values, between this rank and others

  void count(int64_t unique_rows) { ++windows, rows += unique_rows; }
  void report(StrategyReport& report) const {
    const auto mean = [](double sum, int64_t n) {
      return n == 0 ? 0 : sum / static_cast<double>(n);
    };
    report.add("rows_touched", mean(static_cast<double>(rows), windows));
    report.add("unique_row_bytes", mean(bytes, exchanges));
  }
};

}  // namespace lockstep::distributed

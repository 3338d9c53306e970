#pragma once
#include <string>
#include <vector>

#include "apps/report/run_files.h"

namespace lockstep::apps {

/// What runs are compared by: a row for each, a cell for each run. Rows about something that no run
/// has (tokens, embedding tables, modelled time) are left out.
struct RunTable {
  struct Row {
    std::string label;
    std::vector<std::string> cells;  ///< "-": unknown or not finite
    std::vector<double> values;      ///< what the cells say; NaN where that is no number
    enum class Of { run, curve };
    Of of = Of::run;  ///< curve: a point of the training loss
  };
  std::vector<Row> rows;
};

RunTable tabulate(const std::vector<RunFiles>& runs);

/// In columns, a line a row, the names of the runs first.
std::string text_of(const RunTable& table, const std::vector<RunFiles>& runs);

inline constexpr size_t kRunTableLabel = 26;  ///< characters of a label at least

}  // namespace lockstep::apps

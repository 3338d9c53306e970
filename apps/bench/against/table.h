#pragma once
#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/against/contests.h"

namespace lockstep::apps {

/// What the machine can do at most, by our own loops.
struct LimitLine {
  std::string name;  ///< "fp32-loop"
  std::string what;
  std::string unit;  ///< GFLOP/s or GB/s
  Limit limit;
  double value = 0;
};
/// Takes the larger of what `bench peaks` says and what is there already.
void add_peaks(std::vector<LimitLine>& limits, const Results& peaks);
/// The largest of the lines for it; nothing where there is none. What is done in fp32 can be done
/// for bf16, so those count there, too: without AMX they may be the faster ones.
std::optional<double> value_of(const std::vector<LimitLine>& limits, Limit limit);

/// One row of the table, measured.
struct Row {
  RowPlan plan;
  std::vector<double> ours, peer;  ///< in the plan's unit, one a round; may be empty
  std::vector<double> shared;      ///< the figure that a limit is a limit of, one a round
  std::vector<double> our_loss, peer_loss;

  std::optional<double> our_median() const, peer_median() const;
  std::optional<double> ratio() const;
  std::optional<double> share(const std::vector<LimitLine>& limits) const;
  /// Nothing without a mark or without what it is of.
  std::optional<bool> met(const std::vector<LimitLine>& limits) const;
};

struct Table {
  std::vector<std::string> heading;  ///< sentences: the machine, versions, how it was measured
  nlohmann::ordered_json context;    ///< the same for programs
  std::vector<LimitLine> limits;
  std::vector<Row> rows;
  std::vector<std::string> notes;
};

std::string as_text(const Table& table);
std::string as_markdown(const Table& table);
nlohmann::ordered_json as_json(const Table& table);

}  // namespace lockstep::apps

#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

/// What came out of a run, read back from its folder.
namespace lockstep::apps {

/// Points of a metric: steps done, and the value then; NaN where it was not finite.
struct Points {
  std::vector<double> step, value;
};

struct RunResult {
  std::string key;      ///< folder under OUT/runs
  std::string command;  ///< that repeats it
  int exit_code = 0;
  /// Empty: it finished. What it said last, where it diverged (exit code 5): a result like any
  /// other, of which nothing but `metrics` is defined.
  std::string failure;
  double wall_s = 0;
  nlohmann::json summary;  ///< an object; empty where it diverged before its first step
  std::vector<nlohmann::json> metrics;  ///< one object a step

  bool diverged() const { return !failure.empty(); }
  /// Of the summary: "val_loss", or inside of it: "compression.effective_ratio". NaN where it is
  /// not there, and of everything after divergence.
  double figure(const std::string& path) const;
  /// Of the metrics that have it; of a step made twice the last.
  Points series(const std::string& path) const;
};

/// SystemError(file) naming file and line for what is missing or malformed; a last line without its
/// end is left out.
RunResult read_result(const std::string& directory);

/// The number at a path of keys, "a.b.c", or NaN.
double number_at(const nlohmann::json& object, const std::string& path);

}  // namespace lockstep::apps

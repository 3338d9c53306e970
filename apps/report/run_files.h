#pragma once
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::apps {

/// A run's directory, read back.
struct RunFiles {
  std::string directory;
  std::string name;  ///< last part of the path, made printable
  nlohmann::json run, summary;
  std::vector<double> loss;  ///< by step from 1; NaN where it was not finite
};

/// SystemError(file) naming file and line when something is missing or malformed.
RunFiles read_run(const std::string& directory);

/// Several, each under a name of its own: "a", "a 2".
std::vector<RunFiles> read_runs(const std::vector<std::string>& directories);

/// Calls `step` with each line of a run's metrics in turn. Errors are those of read_run.
void for_each_step(const std::string& directory,
                   const std::function<void(const nlohmann::json&)>& step);

/// A number in an object; NaN when it is absent, null or something else.
double number_in(const nlohmann::json& object, const std::string& key);

}  // namespace lockstep::apps

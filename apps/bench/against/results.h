#pragma once
#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "apps/bench/against/child.h"

namespace lockstep::apps {

/// One number that a process of a contest gives.
struct Figure {
  std::string line;  ///< how the "name" of its line begins; empty: the first line
  std::string key;   ///< member of that line; kWallSeconds: the time of the whole process
};
inline constexpr char kWallSeconds[] = "wall_s of the process";

/// What a process printed: JSON objects, a line each. Other lines do not count.
class Results {
 public:
  explicit Results(const ChildOutcome& outcome);
  /// Nothing unless there is such a number, and it is finite.
  std::optional<double> find(const Figure& figure) const;
  /// The largest `key` of the lines whose name begins so; nothing where there is none.
  std::optional<double> largest(const std::string& line, const std::string& key) const;
  /// A word from the first line; "" where there is none.
  std::string word(const std::string& key) const;

 private:
  std::vector<nlohmann::json> lines_;
  double wall_s_;
};

}  // namespace lockstep::apps

#pragma once
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

/// What a run has left behind.
namespace lockstep::test {

inline nlohmann::json summary_of(const std::string& directory) {
  return nlohmann::json::parse(slurp(directory + "/summary.json"));
}

/// The objects of a file with one a line.
inline std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> objects;
  std::istringstream lines(slurp(path));
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

}  // namespace lockstep::test

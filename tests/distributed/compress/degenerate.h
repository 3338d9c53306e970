#pragma once
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep::distributed {

/// Finite numbers that every code has to have a code for.
inline std::map<std::string, std::vector<float>> degenerate_inputs() {
  constexpr float kLeast = std::numeric_limits<float>::denorm_min(),
                  kMost = std::numeric_limits<float>::max();
  return {
      {"nothing", {}},
      {"one", {-3.5f}},
      {"zero", {0}},
      {"zeros", std::vector<float>(100)},
      {"constant", std::vector<float>(100, 0.1f)},
      {"ties", {1, -1, 1, -1, 1, 1, 0, 0, -1}},
      {"subnormal", {kLeast, -kLeast, 0, 1e-40f}},
      {"huge", {kMost, -kMost, 1, 0}},
      {"largest", std::vector<float>(50, kMost)},
      {"wide", {1e30f, -1e-30f, 1, 0}},
  };
}

}  // namespace lockstep::distributed

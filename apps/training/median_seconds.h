#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace lockstep::apps {

/// How long work() takes, in seconds: the median of a few times, after two that do not count.
/// prepare() comes before each, untimed, until it returns true.
template <class Prepare, class Work>
double median_seconds(Prepare prepare, Work work) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarm = 2, kTimed = 7;
  std::vector<double> seconds;
  for (int i = 0; i < kWarm + kTimed; ++i) {
    while (!prepare()) {
    }
    const Clock::time_point begin = Clock::now();
    work();
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (i >= kWarm) seconds.push_back(took.count());
  }
  const auto middle = seconds.begin() + kTimed / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace lockstep::apps

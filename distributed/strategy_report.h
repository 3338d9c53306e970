#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::distributed {

/// What a strategy has to tell about a run: numbers by name, and how often small numbers came up.
struct StrategyReport {
  struct Number {
    std::string name;  ///< "late", in snake case
    double value = 0;
  };
  struct Histogram {
    std::string name;             ///< "staleness", "staleness.rank.3"
    std::vector<int64_t> counts;  ///< of the values 0, 1, …; without zeros at the end
    bool open_end = false;        ///< the last count is of its value and all above
  };
  std::vector<Number> numbers;
  std::vector<Histogram> histograms;

  bool empty() const { return numbers.empty() && histograms.empty(); }
  void add(std::string name, double value) { numbers.push_back({std::move(name), value}); }
  /// Zeros at the end are cut off; `bins`: as many counts as can be told apart.
  void add(std::string name, std::vector<int64_t> counts, size_t bins);
  /// For the terminal: a line of numbers and the histograms as bars of at most `width` characters.
  std::string text(int width = 40) const;
};

}  // namespace lockstep::distributed

#include "distributed/strategy_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::distributed {
namespace {

constexpr size_t kRows = 16;  // more values than this share rows

// "474", "198119", "0.1952": no exponent, no more digits than can mean anything.
std::string short_number(double value) {
  return std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

// "3", "8-15", "256+"
std::string label(size_t first, size_t last, bool open) {
  if (open) return fmt::format("{}+", first);
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

std::string picture(const StrategyReport::Histogram& h, int width) {
  const int64_t total = std::accumulate(h.counts.begin(), h.counts.end(), int64_t{0});
  if (total == 0) return fmt::format("{}: nothing\n", h.name);
  double mean = 0;
  for (size_t i = 0; i < h.counts.size(); ++i)
    mean += static_cast<double>(i) * static_cast<double>(h.counts[i]) / static_cast<double>(total);
  std::string text = fmt::format("{}: {} in all, mean {:.2f}{}\n", h.name, total, mean,
                                 h.open_end ? " or more" : "");
  const size_t step = (h.counts.size() + kRows - 1) / kRows;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < h.counts.size(); i += step)
    rows.push_back(std::accumulate(
        h.counts.begin() + static_cast<std::ptrdiff_t>(i),
        h.counts.begin() + static_cast<std::ptrdiff_t>(std::min(i + step, h.counts.size())),
        int64_t{0}));
  const int64_t most = *std::ranges::max_element(rows);
  for (size_t row = 0; row < rows.size(); ++row) {
    const size_t last = std::min((row + 1) * step, h.counts.size()) - 1;
    const bool open = h.open_end && last + 1 == h.counts.size();
    // What is there shows at least a little.
    const int64_t bar = (rows[row] * width + most - 1) / most;
    text += fmt::format("{:>9} |{:<{}} {}\n", label(row * step, last, open),
                        std::string(static_cast<size_t>(bar), '#'), width, rows[row]);
  }
  return text;
}

}  // namespace

void StrategyReport::add(std::string name, std::vector<int64_t> counts, size_t bins) {
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  const bool open_end = counts.size() == bins;
  histograms.push_back({std::move(name), std::move(counts), open_end});
}

std::string StrategyReport::text(int width) const {
  std::string text;
  for (const Number& number : numbers)
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", number.name, short_number(number.value));
  if (!text.empty()) text += "\n";
  for (const Histogram& histogram : histograms) text += picture(histogram, width);
  return text;
}

}  // namespace lockstep::distributed

#include "apps/report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace lockstep::apps {
namespace {

// Mean of the finite values whose steps fall into column `x` of `width`, for a curve on an axis of
// `steps` steps.
std::optional<double> column_mean(const std::vector<double>& values, size_t steps, int x,
                                  int width) {
  const auto columns = static_cast<size_t>(width), c = static_cast<size_t>(x);
  const size_t begin = c * steps / columns, end = std::max((c + 1) * steps / columns, begin + 1);
  double sum = 0;
  int count = 0;
  for (size_t i = begin; i < std::min(end, values.size()); ++i)
    if (std::isfinite(values[i])) sum += values[i], ++count;
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

}  // namespace

std::string draw_curves(const std::vector<Curve>& curves, int width, int height) {
  size_t steps = 0;
  for (const Curve& curve : curves) steps = std::max(steps, curve.values.size());
  if (steps == 0) return "";
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : curves)
    for (int x = 0; x < width; ++x)
      if (const auto y = column_mean(curve.values, steps, x, width))
        low = std::min(low, *y), high = std::max(high, *y);
  if (!(low <= high)) return "";
  const double span = high > low ? high - low : 1;

  std::vector<std::string> rows(static_cast<size_t>(height),
                                std::string(static_cast<size_t>(width), ' '));
  for (const Curve& curve : curves)
    for (int x = 0; x < width; ++x)
      if (const auto y = column_mean(curve.values, steps, x, width)) {
        const auto row = static_cast<size_t>(std::lround((high - *y) / span * (height - 1)));
        char& cell = rows[row][static_cast<size_t>(x)];
        cell = cell == ' ' ? curve.mark : '*';
      }
  std::string text;
  for (int r = 0; r < height; ++r) {
    const bool labelled = r % 4 == 0 || r == height - 1;
    text += labelled ? fmt::format("{:>9.4f} |", high - span * r / std::max(height - 1, 1))
                     : fmt::format("{:>9} |", "");
    text += rows[static_cast<size_t>(r)] + "\n";
  }
  text += fmt::format("{:>9} +{:-<{}}\n{:>9}  1{:>{}}\n", "", "", width, "step", steps, width - 1);
  return text;
}

double largest_difference(const std::vector<Curve>& curves) {
  double largest = std::numeric_limits<double>::quiet_NaN();
  for (size_t a = 0; a < curves.size(); ++a)
    for (size_t b = a + 1; b < curves.size(); ++b)
      for (size_t i = 0; i < std::min(curves[a].values.size(), curves[b].values.size()); ++i) {
        const double d = std::fabs(curves[a].values[i] - curves[b].values[i]);
        if (std::isfinite(d) && !(d <= largest)) largest = d;
      }
  return largest;
}

}  // namespace lockstep::apps

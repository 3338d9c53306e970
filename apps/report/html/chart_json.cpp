#include "apps/report/html/chart_json.h"

#include "apps/cli/parse.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

// Of a line; more than a screen is wide make no difference.
constexpr size_t kMostPoints = 600;
constexpr int kColumns = 300;

ordered_json number_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return parse_number(fmt::format("{:.9g}", value)).value_or(value);  // float32 has no more
}

ordered_json numbers_json(const std::vector<double>& values, const std::vector<size_t>& kept) {
  ordered_json json = ordered_json::array();
  for (const size_t i : kept) json.push_back(number_json(values[i]));
  return json;
}

ordered_json axis_json(const Axis& axis) {
  return {{"title", axis.title}, {"unit", axis.unit}, {"log", axis.scale == Scale::log}};
}

const char* kind_name(ChartKind kind) {
  switch (kind) {
    case ChartKind::line:
      return "line";
    case ChartKind::scatter:
      return "scatter";
    case ChartKind::bar:
      return "bar";
    case ChartKind::histogram:
      return "histogram";
  }
  return "line";
}

const char* front_name(Front front) {
  switch (front) {
    case Front::none:
      return "none";
    case Front::low_x_low_y:
      return "low_x_low_y";
    case Front::high_x_low_y:
      return "high_x_low_y";
  }
  return "none";
}

void check_series(const Chart& chart, const Series& series) {
  const bool by_category = chart.kind == ChartKind::bar || chart.kind == ChartKind::histogram;
  const size_t expected = by_category ? chart.categories.size() : series.x.size();
  const auto fits = [&](size_t size) { return size == 0 || size == series.y.size(); };
  if (series.x.empty() && series.y.empty()) return;
  check(series.y.size() == expected && fits(series.low.size()) && fits(series.labels.size()) &&
            series.low.size() == series.high.size(),
        "[apps.chart_json] chart '{}', series '{}': lists of different lengths; expected {} values "
        "and as many low, high and labels or none, got {}, {}, {}, {}",
        chart.title, series.name, expected, series.y.size(), series.low.size(), series.high.size(),
        series.labels.size());
}

// The column that a point falls into when x spans kColumns of them; 0 for one without a place.
class Columns {
 public:
  explicit Columns(const Chart& chart) : log_(chart.x.scale == Scale::log) {
    for (const Series& series : chart.series)
      for (const double x : series.x)
        if (const double at = map(x); std::isfinite(at))
          low_ = std::min(low_, at), high_ = std::max(high_, at);
  }
  int of(double x) const {
    const double share = (map(x) - low_) / (high_ - low_);
    return share >= 0 && share <= 1 ? static_cast<int>(share * kColumns) : 0;
  }

 private:
  double map(double x) const { return log_ ? std::log(x) : x; }
  bool log_;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
};

// Of neighbours in one column the lowest, the highest and one that is not finite; both ends.
std::vector<size_t> thinned(const Series& series, const Columns& columns) {
  const size_t size = series.y.size(), none = size;
  std::vector<size_t> kept;
  for (size_t begin = 0, end = 0; begin < size; begin = end) {
    size_t low = none, high = none, gap = none;
    const int column = columns.of(series.x[begin]);
    for (end = begin; end < size && columns.of(series.x[end]) == column; ++end) {
      const double y = series.y[end];
      if (!std::isfinite(y))
        gap = gap == none ? end : gap;
      else {
        if (low == none || y < series.y[low]) low = end;
        if (high == none || y > series.y[high]) high = end;
      }
    }
    std::array<size_t, 3> chosen{low, high, gap};
    std::ranges::sort(chosen);
    for (const size_t i : chosen)
      if (i != none && (kept.empty() || kept.back() != i)) kept.push_back(i);
  }
  if (!kept.empty() && kept.front() != 0) kept.insert(kept.begin(), 0);
  if (!kept.empty() && kept.back() != size - 1) kept.push_back(size - 1);
  return kept;
}

std::vector<size_t> all_of(const Series& series) {
  std::vector<size_t> all(series.y.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

}  // namespace

ordered_json chart_json(const Chart& chart) {
  size_t points = 0, most = 0;
  for (const Series& series : chart.series) {
    check_series(chart, series);
    points += series.y.size();
    most = std::max(most, series.y.size());
  }
  const bool thin = chart.kind == ChartKind::line && most > kMostPoints;
  const Columns columns(chart);
  ordered_json json{{"title", chart.title},
                    {"kind", kind_name(chart.kind)},
                    {"x", axis_json(chart.x)},
                    {"y", axis_json(chart.y)},
                    {"categories", chart.categories},
                    {"front", front_name(chart.front)},
                    {"note", chart.note},
                    {"points", thin ? points : 0},
                    {"series", ordered_json::array()}};
  for (const Series& series : chart.series) {
    const std::vector<size_t> kept = thin ? thinned(series, columns) : all_of(series);
    ordered_json& s = json["series"].emplace_back(ordered_json{{"name", series.name}});
    if (!series.x.empty()) s["x"] = numbers_json(series.x, kept);
    s["y"] = numbers_json(series.y, kept);
    if (!series.low.empty()) {
      s["low"] = numbers_json(series.low, kept);
      s["high"] = numbers_json(series.high, kept);
    }
    if (!series.labels.empty())
      for (const size_t i : kept) s["labels"].push_back(series.labels[i]);
  }
  return json;
}

}  // namespace lockstep::apps

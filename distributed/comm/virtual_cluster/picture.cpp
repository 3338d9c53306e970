#include "distributed/comm/virtual_cluster/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

/// Of computing, computing with communication hidden behind it, exposed communication, waiting.
using Glyphs = std::array<std::string_view, 4>;
constexpr Glyphs kUnicode = {"█", "▓", "░", "·"}, kAscii = {"#", "%", "~", "."};

/// When the last step that is drawn ends on this rank.
double end_of(const Timeline& timeline, int rank, int64_t steps) {
  const std::span<const double> ends = timeline.kept_step_ends(rank);
  const size_t count = std::min(ends.size(), static_cast<size_t>(steps));
  return count == 0 ? 0 : ends[count - 1];
}

std::string line(const Timeline& timeline, int rank, double end, double column, int width,
                 const Glyphs& glyphs) {
  IntervalSet compute, communication;
  for (const Timeline::Span& span : timeline.kept(rank))
    (span.kind == Timeline::Span::Kind::communication ? communication : compute).add(span.time);
  std::string text;
  for (int i = 0; i < width; ++i) {
    const Interval cell = {i * column, std::min((i + 1) * column, end)};
    if (cell.length() < 0.5 * column) {
      text += ' ';
      continue;
    }
    const StepTimes times = account(cell, compute, communication);
    const std::array<double, 4> shares = {times.compute - times.hidden, times.hidden, times.exposed,
                                          times.idle()};
    // The first of equals; rounding of times does not decide.
    size_t most = 0;
    for (size_t s = 1; s < shares.size(); ++s)
      if (shares[s] > shares[most] + 1e-9 * column) most = s;
    text += glyphs[most];
  }
  return text;
}

/// Ticks at multiples of 1, 2 or 5 times a power of ten, at least 9 columns apart.
std::string scale(double column, int width) {
  constexpr double kLeast = 9;
  double tick = std::pow(10, std::floor(std::log10(kLeast * column)));
  while (tick < kLeast * column * (1 - 1e-9)) {
    const double mantissa = tick / std::pow(10, std::floor(std::log10(tick * (1 + 1e-9))));
    tick *= mantissa > 1.5 && mantissa < 3 ? 2.5 : 2;
  }
  struct Unit {
    double seconds;
    const char* name;
  };
  const Unit unit = tick > 0.999      ? Unit{1, "s"}
                    : tick > 0.999e-3 ? Unit{1e-3, "ms"}
                    : tick > 0.999e-6 ? Unit{1e-6, "us"}
                                      : Unit{1e-9, "ns"};
  std::string text;
  for (int i = 0;; ++i) {
    const double at = std::round(i * tick / column);
    const std::string label = fmt::format("|{:.6g} {}", i * tick / unit.seconds, unit.name);
    if (at + static_cast<double>(label.size()) > width) return text;
    text.resize(static_cast<size_t>(at), ' ');
    text += label;
  }
}

int percent(const StepTimes& times) {
  return static_cast<int>(std::lround(100 * times.utilisation()));
}

/// The ranks that are drawn, in their order.
std::vector<int> chosen(const Timeline& timeline, int count) {
  std::vector<int> ranks(static_cast<size_t>(timeline.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (timeline.ranks() <= count) return ranks;
  std::ranges::stable_sort(ranks, std::greater{},
                           [&](int rank) { return timeline.total(rank).compute; });
  ranks.erase(ranks.begin() + (count + 1) / 2, ranks.end() - count / 2);
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

std::string picture(const Timeline& timeline, const PictureOptions& options) {
  check(options.width >= 8 && options.steps >= 1 && options.max_ranks >= 1,
        "[distributed.picture] expected at least 8 columns, 1 step and 1 rank, got {}, {} and {}",
        options.width, options.steps, options.max_ranks);
  double end = 0;
  for (int rank = 0; rank < timeline.ranks(); ++rank)
    end = std::max(end, end_of(timeline, rank, options.steps));
  if (end <= 0) return "no step has ended yet\n";

  const Glyphs& glyphs = options.glyphs == PictureOptions::Glyphs::ascii ? kAscii : kUnicode;
  const double column = end / options.width;
  const std::vector<int> ranks = chosen(timeline, options.max_ranks);
  const int digits = static_cast<int>(fmt::formatted_size("{}", timeline.ranks() - 1));
  std::string text;
  for (const int rank : ranks)
    text += fmt::format(
        "rank {:>{}} {} {:>3} %\n", rank, digits,
        line(timeline, rank, end_of(timeline, rank, options.steps), column, options.width, glyphs),
        percent(timeline.total(rank)));
  text += fmt::format("{:{}}{}\n", "", digits + 6, scale(column, options.width));
  if (const int more = timeline.ranks() - static_cast<int>(ranks.size()); more > 0)
    text += fmt::format(
        "{} ranks that compute more than some of these and less than others are not shown\n", more);
  text += fmt::format(
      "{} compute  {} hidden communication  {} exposed communication  {} wait  % computing\n",
      glyphs[0], glyphs[1], glyphs[2], glyphs[3]);
  return text;
}

}  // namespace lockstep::distributed::virtual_cluster

#include "apps/training/profile_report.h"

#include "core/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;
using Kind = Profile::Kind;
using Row = Profile::Row;
using Span = Profile::Span;

constexpr double kShown = 0.0005;  // of the time: smaller rows are added up

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }
double per_ns(double amount, int64_t ns) { return ns > 0 ? amount / static_cast<double>(ns) : 0; }

bool is_operation(const Row& row) {
  return row.kind == Kind::kernel || row.kind == Kind::backward || row.kind == Kind::collective;
}

std::string name_of(Kind kind, std::string_view name) {
  return fmt::format("{}{}", kind == Kind::backward ? "backward of " : "", name);
}

std::string_view category(Kind kind) {
  constexpr std::string_view names[] = {"step",     "phase",      "kernel",
                                        "backward", "collective", "transfer"};
  return names[static_cast<int>(kind)];
}

// What all of them add up to.
struct Sums {
  int64_t steps = 0, step_ns = 0, outside_ns = 0, collective_ns = 0;
  explicit Sums(const Profile& profile, const std::vector<Row>& rows) : steps(profile.steps()) {
    for (const Row& row : rows) {
      if (row.kind == Kind::step) step_ns += row.total_ns;
      if (row.kind == Kind::step || row.kind == Kind::phase) outside_ns += row.self_ns;
      if (row.kind == Kind::collective) collective_ns += row.self_ns;
    }
  }
  double share(int64_t ns) const { return per_ns(static_cast<double>(ns), step_ns); }
  double per_step(double amount) const { return amount / static_cast<double>(steps); }
};

std::vector<Row> rows_of(std::vector<Row> rows, Kind kind) {
  std::erase_if(rows, [&](const Row& row) { return row.kind != kind; });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.total_ns > b.total_ns; });
  return rows;
}

std::string phases_text(const std::vector<Row>& rows, const Sums& sums) {
  std::string text = fmt::format("{:<14}{:>12}{:>10}\n", "phase", "ms a step", "share");
  for (const Row& row : rows_of(rows, Kind::phase))
    text += fmt::format("{:<14}{:>12.3f}{:>8.1f} %\n", row.name, sums.per_step(ms(row.total_ns)),
                        100 * sums.share(row.total_ns));
  return text;
}

// "" where it is not known.
std::string rate_text(double amount, int64_t ns) {
  return amount > 0 && ns > 0 ? fmt::format("{:.1f}", per_ns(amount, ns)) : "";
}

std::string operations_text(const std::vector<Row>& rows, const Sums& sums) {
  const auto line = [](auto&&... cells) {  // without blanks at its end
    std::string text =
        fmt::format("{:<{}}  {:<{}}{:>9}{:>12}{:>12}{:>12}{:>9}{:>9}{:>8}", cells...);
    text.resize(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::vector<Row> shown;
  int64_t small = 0, small_ns = 0;
  size_t widest = 0, widest_phase = 0;
  for (const Row& row : rows) {
    if (!is_operation(row)) continue;
    if (sums.share(row.self_ns) < kShown) {
      ++small;
      small_ns += row.self_ns;
      continue;
    }
    shown.push_back(row);
    widest = std::max(widest, name_of(row.kind, row.name).size());
    widest_phase = std::max(widest_phase, row.phase.size());
  }
  std::string text = line("operation", widest, "in", widest_phase, "calls", "total ms", "self ms",
                          "average us", "share", "GFLOP/s", "GB/s");
  for (const Row& row : shown) {
    const bool rated = row.kind == Kind::kernel;
    text += line(name_of(row.kind, row.name), widest, row.phase, widest_phase, row.calls,
                 fmt::format("{:.2f}", ms(row.total_ns)), fmt::format("{:.2f}", ms(row.self_ns)),
                 fmt::format("{:.1f}", 1e3 * ms(row.total_ns) / static_cast<double>(row.calls)),
                 fmt::format("{:.1f} %", 100 * sums.share(row.self_ns)),
                 rated ? rate_text(row.cost.flops, row.total_ns) : "",
                 rated ? rate_text(row.cost.bytes, row.total_ns) : "");
  }
  if (small > 0)
    text += fmt::format("{} more, each below {} %: {:.1f} %\n", small, 100 * kShown,
                        100 * sums.share(small_ns));
  return text;
}

std::string collectives_text(const std::vector<Row>& rows, const Sums& sums) {
  std::string text = fmt::format("{:<14}{:>9}{:>11}{:>22}\n", "collective", "a step", "MB a step",
                                 "on its way, ms each");
  for (const Row& row : rows_of(rows, Kind::transfer))
    text += fmt::format("{:<14}{:>9.1f}{:>11.3f}{:>22.3f}\n", row.name,
                        sums.per_step(static_cast<double>(row.calls)),
                        sums.per_step(row.cost.bytes) * 1e-6,
                        ms(row.total_ns) / static_cast<double>(row.calls));
  return text +
         fmt::format("posting, moving and waiting took the rank {:.3f} ms a step ({:.1f} %)\n",
                     sums.per_step(ms(sums.collective_ns)), 100 * sums.share(sums.collective_ns));
}

ordered_json json_of(const Row& row) {
  ordered_json json{{"name", row.name}};
  if (is_operation(row)) json.update({{"kind", category(row.kind)}, {"phase", row.phase}});
  json.update({{"calls", row.calls}, {"total_ms", ms(row.total_ns)}});
  if (row.kind != Kind::transfer) json["self_ms"] = ms(row.self_ns);
  if (row.kind == Kind::kernel && row.cost.flops > 0)
    json["gflops"] = per_ns(row.cost.flops, row.total_ns);
  if (row.kind == Kind::kernel && row.cost.bytes > 0)
    json["gb_per_s"] = per_ns(row.cost.bytes, row.total_ns);
  if (row.kind == Kind::transfer) json["bytes"] = row.cost.bytes;
  return json;
}

// By their begin, the outer ones first.
std::vector<Span> in_order(std::span<const Span> spans) {
  std::vector<Span> sorted(spans.rbegin(), spans.rend());
  std::stable_sort(sorted.begin(), sorted.end(), [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return sorted;
}

// Transfers overlap: each goes to the first lane that is free. Lane 0 is the rank's thread.
class Lanes {
 public:
  int of(const Span& span) {
    if (span.kind != Kind::transfer) return 0;
    const auto free = std::find_if(busy_until_.begin(), busy_until_.end(),
                                   [&](int64_t until) { return until <= span.begin_ns; });
    const auto lane = static_cast<int>(free - busy_until_.begin());
    if (free == busy_until_.end()) busy_until_.push_back(0);
    busy_until_[static_cast<size_t>(lane)] = span.end_ns;
    return lane + 1;
  }
  int count() const { return static_cast<int>(busy_until_.size()); }

 private:
  std::vector<int64_t> busy_until_;
};

void write_rank(ChromeTrace& trace, int rank, const Profile& profile, int64_t origin_ns) {
  trace.name_process(rank, fmt::format("rank {}", rank));
  trace.name_lane(rank, 0, "thread");
  Lanes lanes;
  int64_t step = profile.warm_up();
  for (const Span& span : in_order(profile.spans())) {
    std::string name = name_of(span.kind, span.name);
    if (span.kind == Kind::step) name += fmt::format(" {}", ++step);
    std::vector<ChromeTrace::Arg> args;
    const int64_t ns = span.end_ns - span.begin_ns;
    if (span.cost.flops > 0) args.push_back({"GFLOP/s", per_ns(span.cost.flops, ns)});
    if (span.cost.bytes > 0) args.push_back({"bytes", span.cost.bytes});
    trace.span({.name = name,
                .category = category(span.kind),
                .process = rank,
                .lane = lanes.of(span),
                .begin_us = static_cast<double>(span.begin_ns - origin_ns) * 1e-3,
                .duration_us = static_cast<double>(ns) * 1e-3},
               args);
  }
  for (int lane = 1; lane <= lanes.count(); ++lane)
    trace.name_lane(rank, lane, fmt::format("on its way {}", lane));
}

}  // namespace

std::string profile_text(const Profiles& ranks) {
  const Profile& profile = *ranks.front();
  const std::vector<Row> rows = profile.rows();
  const Sums sums(profile, rows);
  if (sums.steps == 0)
    return fmt::format("profile: nothing but {} steps of warm-up\n", profile.warm_up());
  std::string text = fmt::format(
      "profile of rank 0 of {}: {} steps, {:.3f} ms each; {} before them warmed up and are left "
      "out\n\n",
      ranks.size(), sums.steps, sums.per_step(ms(sums.step_ns)), profile.warm_up());
  text += phases_text(rows, sums) + "\n" + operations_text(rows, sums);
  text += fmt::format("not in any operation: {:.1f} %\n\n", 100 * sums.share(sums.outside_ns));
  if (ranks.size() > 1) text += collectives_text(rows, sums) + "\n";
  if (profile.dropped() > 0)
    text += fmt::format("the trace lacks {} spans beyond its first {}\n", profile.dropped(),
                        profile.spans().size());
  return text;
}

ordered_json profile_json(const Profile& profile) {
  const std::vector<Row> rows = profile.rows();
  const Sums sums(profile, rows);
  ordered_json json{{"warm_up", profile.warm_up()}, {"steps", sums.steps}};
  if (sums.steps > 0) json["step_ms"] = sums.per_step(ms(sums.step_ns));
  json["outside_operations"] = sums.share(sums.outside_ns);
  for (const char* list : {"phases", "operations", "transfers"}) json[list] = ordered_json::array();
  for (const Row& row : rows) {
    if (row.kind == Kind::step) continue;
    json[row.kind == Kind::phase      ? "phases"
         : row.kind == Kind::transfer ? "transfers"
                                      : "operations"]
        .push_back(json_of(row));
  }
  return json;
}

void write_profile_trace(const std::string& path, const Profiles& ranks) {
  int64_t origin_ns = INT64_MAX;
  for (const auto& profile : ranks)
    for (const Span& span : profile->spans()) origin_ns = std::min(origin_ns, span.begin_ns);
  ChromeTrace trace(path);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    write_rank(trace, static_cast<int>(rank), *ranks[rank], origin_ns);
  trace.commit();
}

}  // namespace lockstep::apps

// A timeline as a Chrome trace.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/chrome_trace.h"
#include "distributed/comm/virtual_cluster/timeline.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

constexpr double kMicro = 1e6;  // microseconds a second

/// A rank's own lane: what it computes, in between what it waits, and where its steps end.
void write_computing(ChromeTrace& trace, int rank, const std::vector<Timeline::Span>& spans,
                     std::span<const double> step_ends) {
  const auto span = [&](std::string_view name, std::string_view category, Interval time) {
    return ChromeTrace::Span{.name = name,
                             .category = category,
                             .process = rank,
                             .lane = 0,
                             .begin_us = time.begin * kMicro,
                             .duration_us = time.length() * kMicro};
  };
  double done = 0;
  const auto wait_until = [&](double time) {
    if (done < time) trace.span(span("wait", "wait", {done, time}));
    done = std::max(done, time);
  };
  for (const Timeline::Span& s : spans) {
    if (s.kind == Timeline::Span::Kind::communication) continue;
    wait_until(s.time.begin);
    trace.span(
        span(s.kind == Timeline::Span::Kind::forward ? "forward" : "backward", "compute", s.time),
        {{s.tag.what, static_cast<double>(s.tag.index)}});
    done = std::max(done, s.time.end);
  }
  for (size_t step = 0; step < step_ends.size(); ++step)
    trace.instant({.name = fmt::format("end of step {}", step + 1),
                   .process = rank,
                   .lane = 0,
                   .at_us = step_ends[step] * kMicro});
  if (!step_ends.empty()) wait_until(step_ends.back());
}

/// Spans of a lane nest, and communications may overlap: each goes to the first lane that is free.
void write_communicating(ChromeTrace& trace, int rank, const std::vector<Timeline::Span>& spans) {
  std::vector<double> busy_until;
  for (const Timeline::Span& s : spans) {
    if (s.kind != Timeline::Span::Kind::communication) continue;
    const auto lane =
        std::ranges::find_if(busy_until, [&](double until) { return until <= s.time.begin; });
    const int number = 1 + static_cast<int>(lane - busy_until.begin());
    if (lane == busy_until.end()) {
      trace.name_lane(rank, number, number == 1 ? "network" : fmt::format("network {}", number));
      busy_until.push_back(s.time.end);
    } else {
      *lane = s.time.end;
    }
    const std::string name =
        s.tag.what == nullptr ? s.what : fmt::format("{} {} {}", s.what, s.tag.what, s.tag.index);
    trace.span({.name = name,
                .category = "communication",
                .process = rank,
                .lane = number,
                .begin_us = s.time.begin * kMicro,
                .duration_us = s.time.length() * kMicro},
               {{"bytes sent", s.bytes}});
  }
}

}  // namespace

void Timeline::write_trace(const std::string& path) const {
  ChromeTrace trace(path);
  for (int rank = 0; rank < ranks(); ++rank) {
    trace.name_process(rank, fmt::format("rank {}", rank));
    trace.name_lane(rank, 0, "compute");
    std::vector<Span> spans = of(rank).kept;
    std::ranges::stable_sort(spans, {}, [](const Span& s) { return s.time.begin; });
    write_computing(trace, rank, spans, of(rank).step_ends);
    write_communicating(trace, rank, spans);
  }
  trace.commit();
}

}  // namespace lockstep::distributed::virtual_cluster

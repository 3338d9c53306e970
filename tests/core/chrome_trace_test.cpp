#include "core/chrome_trace.h"

#include "core/check.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using nlohmann::json;
using test::slurp;
using test::spill;
using test::TempFolder;

// The events that `write` leaves in a trace.
template <class F>
json events_of(F&& write) {
  TempFolder folder;
  ChromeTrace trace(folder / "trace.json");
  write(trace);
  trace.commit();
  EXPECT_EQ(folder.entries(), 1);
  return json::parse(slurp(folder / "trace.json")).at("traceEvents");
}

TEST(ChromeTrace, ASpanHasNamePlaceTimesAndNumbers) {
  const json events = events_of([](ChromeTrace& trace) {
    trace.span({.name = "matmul",
                .category = "kernel",
                .process = 2,
                .lane = 7,
                .begin_us = 1234.5,
                .duration_us = 0.25},
               {{"GFLOP/s", 123.5}, {"bytes", 4096}});
  });
  EXPECT_EQ(events, json::parse(R"([{"ph": "X", "name": "matmul", "cat": "kernel", "pid": 2,
      "tid": 7, "ts": 1234.5, "dur": 0.25, "args": {"GFLOP/s": 123.5, "bytes": 4096}}])"));
}

TEST(ChromeTrace, AnInstantHasATimeAndNoDuration) {
  const json events = events_of(
      [](ChromeTrace& trace) { trace.instant({.name = "crash", .process = 1, .at_us = -3}); });
  EXPECT_EQ(events, json::parse(R"([{"ph": "i", "name": "crash", "pid": 1, "tid": 0, "ts": -3.0,
      "s": "t"}])"));
}

TEST(ChromeTrace, ProcessesAndLanesAreNamedAndOrdered) {
  const json events = events_of([](ChromeTrace& trace) {
    trace.name_process(3, "rank 3");
    trace.name_lane(3, 1, "network");
  });
  EXPECT_EQ(events, json::parse(R"([
    {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "rank 3"}},
    {"ph": "M", "name": "process_sort_index", "pid": 3, "tid": 0, "args": {"sort_index": 3}},
    {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "network"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 3, "tid": 1, "args": {"sort_index": 1}}])"));
}

TEST(ChromeTrace, WithoutEventsItIsAnEmptyTrace) {
  EXPECT_EQ(events_of([](ChromeTrace&) {}), json::array());
}

TEST(ChromeTrace, NamesOfAnyBytesComeThrough) {
  const std::vector<std::string> names{"a \"quoted\" \\ name", "two\nlines\t\x01", "µs", ""};
  const json events = events_of([&](ChromeTrace& trace) {
    for (const std::string& name : names) trace.span({.name = name, .category = name}, {{name, 1}});
    trace.span({.name = "not UTF-8: \xff"});
  });
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(events[i]["name"], names[i]);
    EXPECT_EQ(events[i].value("cat", ""), names[i]);
    EXPECT_EQ(events[i]["args"][names[i]], 1);
  }
  EXPECT_EQ(events.back()["name"], "not UTF-8: \xef\xbf\xbd");
}

TEST(ChromeTrace, NumbersThatAreNotFiniteAreNull) {
  const json events = events_of([](ChromeTrace& trace) {
    trace.span({.name = "step"}, {{"loss", NAN}, {"scale", INFINITY}, {"tiny", 1e-300}});
  });
  EXPECT_EQ(events[0]["args"], json::parse(R"({"loss": null, "scale": null, "tiny": 1e-300})"));
}

// Begin and duration rounded on their own would let a child end a nanosecond after its parent.
TEST(ChromeTrace, SpansThatNestStillNestWhenRounded) {
  const json events = events_of([](ChromeTrace& trace) {
    for (int i = 0; i < 1000; ++i) {
      const double begin = 1e9 + 0.0003 * i, middle = begin + 0.00041;
      trace.span({.name = "parent", .begin_us = begin, .duration_us = 0.00123});
      trace.span(
          {.name = "child", .begin_us = middle, .duration_us = begin + 0.00123 - middle - 1e-6});
    }
  });
  const auto ns = [](const json& number) { return std::llround(number.get<double>() * 1e3); };
  for (size_t i = 0; i < events.size(); i += 2) {
    const json &parent = events[i], &child = events[i + 1];
    EXPECT_GE(ns(child["ts"]), ns(parent["ts"]));
    EXPECT_LE(ns(child["ts"]) + ns(child["dur"]), ns(parent["ts"]) + ns(parent["dur"])) << i;
  }
}

TEST(ChromeTrace, ManySpansAreAllThere) {
  constexpr int kSpans = 100'000;  // some 9 MB: written in pieces
  const json events = events_of([](ChromeTrace& trace) {
    for (int i = 0; i < kSpans; ++i)
      trace.span({.name = "span", .category = "c", .lane = i % 3, .begin_us = 1.5 * i});
  });
  ASSERT_EQ(events.size(), static_cast<size_t>(kSpans));
  for (int i = 0; i < kSpans; i += 997) EXPECT_EQ(events[i]["ts"], 1.5 * i);
}

TEST(ChromeTrace, WithoutCommitNothingIsLeft) {
  TempFolder folder;
  spill(folder / "trace.json", "old");
  { ChromeTrace(folder / "trace.json").span({.name = "x"}); }
  EXPECT_EQ(slurp(folder / "trace.json"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(ChromeTrace, PathsThatCannotBeWrittenAreErrorsAtOnce) {
  TempFolder folder;
  EXPECT_EQ(test::error_of<SystemError>([&] { ChromeTrace(folder / "none/trace.json"); }),
            "cannot create " + (folder / "none/trace.json") + ": No such file or directory");
  EXPECT_EQ(test::error_of<SystemError>([&] { ChromeTrace{folder.path()}; }),
            "cannot write " + folder.path() + ": is a directory");
  EXPECT_EQ(test::error_of<UsageError>([] { ChromeTrace(""); }),
            "[core.chrome_trace] path; expected the name of a file, got nothing");
  EXPECT_EQ(folder.entries(), 0);
}

TEST(ChromeTrace, TimesThatCannotBeAreRefusedAndLeaveTheTraceWhole) {
  const json events = events_of([](ChromeTrace& trace) {
    for (const auto& [begin, duration] : {std::pair{NAN, 1.f},
                                          {INFINITY, 1.f},
                                          {1e30f, 1.f},
                                          {0.f, -1.f},
                                          {0.f, NAN},
                                          {0.f, INFINITY}})
      EXPECT_THROW(trace.span({.name = "x", .begin_us = begin, .duration_us = duration}),
                   UsageError);
    EXPECT_THROW(trace.instant({.name = "x", .at_us = NAN}), UsageError);
    trace.span({.name = "good"});
  });
  EXPECT_EQ(events.size(), 1u);
}

TEST(ChromeTrace, NothingFollowsACommit) {
  TempFolder folder;
  ChromeTrace trace(folder / "t");
  trace.commit();
  EXPECT_THROW(trace.span({.name = "late"}), UsageError);
  EXPECT_THROW(trace.commit(), UsageError);
  EXPECT_EQ(json::parse(slurp(folder / "t"))["traceEvents"], json::array());
}

}  // namespace
}  // namespace lockstep

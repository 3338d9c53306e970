// What ranks did when: totals, the trace, the picture.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "distributed/comm/virtual_cluster/picture.h"
#include "distributed/comm/virtual_cluster/timeline.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

using nlohmann::json;

/// Steps of two ranks, the second of which is slower: forward 10 ms (13), backward 20 ms (26), a
/// bucket ready at half of backward and one at its end, each exchanged in 8 ms.
Timeline two_ranks(int64_t steps, int64_t keep) {
  Timeline timeline(2, keep);
  double start = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const double forward[] = {0.010, 0.013}, whole[] = {0.030, 0.039};
    for (int rank = 0; rank < 2; ++rank) {
      const double turn = start + forward[rank], done = start + whole[rank];
      timeline.computed(rank, {start, turn}, Pass::forward, step);
      timeline.computed(rank, {turn, done}, Pass::backward, step);
    }
    for (int rank = 0; rank < 2; ++rank) {
      timeline.communicated(rank, {start + 0.026, start + 0.034}, "all_reduce", {"bucket", 0}, 500);
      timeline.communicated(rank, {start + 0.039, start + 0.047}, "all_reduce", {"bucket", 1}, 500);
    }
    start += 0.047;
    for (int rank = 0; rank < 2; ++rank) timeline.end_step(rank, start);
  }
  return timeline;
}

void expect_times(const StepTimes& times, double compute, double wait, double exposed,
                  double hidden) {
  EXPECT_NEAR(times.compute, compute, 1e-12);
  EXPECT_NEAR(times.wait, wait, 1e-12);
  EXPECT_NEAR(times.exposed, exposed, 1e-12);
  EXPECT_NEAR(times.hidden, hidden, 1e-12);
}

TEST(Timeline, TotalsCountAllStepsWhileOnlyTheFirstAreKept) {
  const Timeline timeline = two_ranks(100, 3);
  expect_times(timeline.total(0), 3.0, 1.7, 1.2, 0.4);
  expect_times(timeline.total(1), 3.9, 0.8, 0.8, 0.8);
  EXPECT_NEAR(timeline.total(1).utilisation(), 39.0 / 47, 1e-12);
  EXPECT_EQ(timeline.steps(0), 100);
  EXPECT_EQ(timeline.kept(0).size(), 3u * 4);
  EXPECT_EQ(timeline.kept_step_ends(1).size(), 3u);
  EXPECT_EQ(two_ranks(4, 0).kept(0).size(), 0u);
  EXPECT_NEAR(two_ranks(4, 0).total(0).compute, 0.12, 1e-12);
}

TEST(Timeline, AStepsTimesAreThoseSinceTheLastOne) {
  Timeline timeline(1);
  timeline.computed(0, {0, 3}, Pass::forward, 0);
  timeline.communicated(0, {2, 4}, "push", {}, 1);
  EXPECT_EQ(timeline.end_step(0, 5).exposed, 1);
  timeline.computed(0, {5, 6}, Pass::forward, 1);
  expect_times(timeline.end_step(0, 10), 1, 4, 0, 0);
  expect_times(timeline.total(0), 4, 6, 1, 1);
}

TEST(Timeline, CommunicationAcrossTheEndOfAStepCountsOnBothSides) {
  Timeline timeline(1);
  timeline.computed(0, {0, 4}, Pass::forward, 0);
  timeline.communicated(0, {3, 9}, "all_reduce", {}, 1);  // told ahead: nobody waits for it
  expect_times(timeline.end_step(0, 5), 4, 1, 1, 1);
  timeline.computed(0, {5, 8}, Pass::forward, 1);
  expect_times(timeline.end_step(0, 9), 3, 1, 1, 3);
  EXPECT_EQ(timeline.total(0).exposed + timeline.total(0).hidden, 6);
}

TEST(Timeline, CommunicationToldLateIsHiddenWhereTheRankComputedThen) {
  Timeline timeline(1);
  timeline.computed(0, {0, 4}, Pass::forward, 0);
  timeline.communicated(0, {1, 2}, "all_reduce", {}, 1);
  expect_times(timeline.end_step(0, 5), 4, 1, 0, 1);
  timeline.computed(0, {5, 8}, Pass::forward, 1);
  timeline.communicated(0, {1, 6}, "all_reduce", {}, 1);  // 1 to 2 has been counted
  expect_times(timeline.end_step(0, 8), 3, 0, 1, 2 + 1);
  expect_times(timeline.total(0), 7, 1, 1, 4);
}

TEST(Timeline, MemoryIsBounded) {
  Timeline timeline(1, 1'000'000);
  for (int64_t step = 0; step < 20'000; ++step) {
    const double begin = static_cast<double>(step);
    timeline.computed(0, {begin, begin + 0.5}, Pass::forward, step);
    timeline.end_step(0, begin + 1);
  }
  EXPECT_EQ(timeline.kept(0).size(), 10'000u);
  EXPECT_EQ(timeline.total(0).compute, 10'000);
}

TEST(Timeline, RanksAndTimesThatAreNotThereAreRefused) {
  Timeline timeline(2);
  timeline.end_step(1, 5);
  EXPECT_EQ(test::error_of([&] { timeline.end_step(1, 4); }),
            "[distributed.timeline] rank 1: expected a time from 5 s on, got 4 s");
  EXPECT_EQ(test::error_of([&] { timeline.end_step(2, 6); }), "[distributed.timeline] rank 2 of 2");
  EXPECT_THROW(Timeline(0), UsageError);
}

TEST(TimelineTrace, ARankIsAProcessWithALaneForComputingAndOneForTheNetwork) {
  const test::TempFolder folder;
  const std::string path = folder / "trace.json";
  two_ranks(5, 1).write_trace(path);
  const json events = json::parse(test::slurp(path)).at("traceEvents");
  json of_rank_0 = json::array();
  for (const json& e : events)
    if (e.at("pid") == 0 && e.at("ph") != "M") of_rank_0.push_back(e);
  EXPECT_EQ(of_rank_0, json::parse(R"([
    {"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "tid": 0, "ts": 0.0, "dur": 10000.0,
     "args": {"micro": 0}},
    {"ph": "X", "name": "backward", "cat": "compute", "pid": 0, "tid": 0, "ts": 10000.0,
     "dur": 20000.0, "args": {"micro": 0}},
    {"ph": "i", "name": "end of step 1", "pid": 0, "tid": 0, "ts": 47000.0, "s": "t"},
    {"ph": "X", "name": "wait", "cat": "wait", "pid": 0, "tid": 0, "ts": 30000.0, "dur": 17000.0},
    {"ph": "X", "name": "all_reduce bucket 0", "cat": "communication", "pid": 0, "tid": 1,
     "ts": 26000.0, "dur": 8000.0, "args": {"bytes sent": 500}},
    {"ph": "X", "name": "all_reduce bucket 1", "cat": "communication", "pid": 0, "tid": 1,
     "ts": 39000.0, "dur": 8000.0, "args": {"bytes sent": 500}}])"));
  json names = json::array();
  for (const json& e : events)
    if (e.at("name") == "process_name" || e.at("name") == "thread_name")
      names.push_back(e.at("args").at("name"));
  EXPECT_EQ(names,
            json::parse(R"(["rank 0", "compute", "network", "rank 1", "compute", "network"])"));
}

TEST(TimelineTrace, CommunicationsThatOverlapGetLanesOfTheirOwn) {
  Timeline timeline(1);
  timeline.communicated(0, {2, 4}, "pull", {}, 1);  // told out of order
  timeline.communicated(0, {0, 3}, "push", {}, 1);
  timeline.communicated(0, {3, 5}, "push", {}, 1);
  timeline.end_step(0, 5);
  const test::TempFolder folder;
  timeline.write_trace(folder / "trace.json");
  std::string lanes;
  const json trace = json::parse(test::slurp(folder / "trace.json"));
  for (const json& e : trace.at("traceEvents"))
    if (e.value("cat", "") == "communication")
      lanes += e.at("name").get<std::string>() + " " + e.at("tid").dump() + ", ";
  EXPECT_EQ(lanes, "push 1, pull 2, push 1, ");
}

std::string draw(const Timeline& timeline, PictureOptions options) {
  options.glyphs = PictureOptions::Glyphs::ascii;
  return picture(timeline, options);
}

TEST(TimelinePicture, ShowsWhatEveryRankDid) {
  EXPECT_EQ("\n" + draw(two_ranks(100, 3), {.width = 47, .steps = 1}), R"(
rank 0 ##########################%%%%~~~~.....~~~~~~~~  64 %
rank 1 ##########################%%%%%%%%#####~~~~~~~~  83 %
       |0 ms     |10 ms    |20 ms    |30 ms    |40 ms
# compute  % hidden communication  ~ exposed communication  . wait  % computing
)");
}

TEST(TimelinePicture, ShowsSeveralStepsAndNoMoreThanWereKept) {
  const std::string two = draw(two_ranks(100, 2), {.width = 46, .steps = 2});
  EXPECT_EQ("\n" + two, R"(
rank 0 #############%%~~..~~~~#############%%~~..~~~~  64 %
rank 1 #############%%%%##~~~~#############%%%%##~~~~  83 %
       |0 ms     |20 ms    |40 ms   |60 ms    |80 ms
# compute  % hidden communication  ~ exposed communication  . wait  % computing
)");
  EXPECT_EQ(draw(two_ranks(100, 2), {.width = 46, .steps = 50}), two);
}

TEST(TimelinePicture, IsDrawnWithBlocksUnlessToldOtherwise) {
  EXPECT_EQ("\n" + picture(two_ranks(1, 1), {.width = 16, .steps = 1}), R"(
rank 0 █████████▓░░·░░░  64 %
rank 1 █████████▓▓▓█░░░  83 %
       |0 ms
█ compute  ▓ hidden communication  ░ exposed communication  · wait  % computing
)");
}

TEST(TimelinePicture, ARankThatEndsEarlierLeavesTheRestBlank) {
  Timeline timeline(2);
  for (int rank = 0; rank < 2; ++rank) {
    timeline.computed(rank, {0, 1e-6 * (1 + rank)}, Pass::forward, 0);
    timeline.end_step(rank, 1e-6 * (1 + rank));
  }
  EXPECT_EQ("\n" + draw(timeline, {.width = 20, .steps = 1}), R"(
rank 0 ##########           100 %
rank 1 #################### 100 %
       |0 us     |1 us
# compute  % hidden communication  ~ exposed communication  . wait  % computing
)");
}

TEST(TimelinePicture, OfManyRanksThoseThatComputeMostAndLeastAreDrawn) {
  Timeline timeline(64);
  for (int rank = 0; rank < 64; ++rank) {
    const int computes = rank == 40 ? 100 : rank == 3 ? 70 : rank == 50 ? 20 : 30 + rank % 9;
    timeline.computed(rank, {0, static_cast<double>(computes)}, Pass::forward, 0);
    timeline.end_step(rank, 100);
  }
  EXPECT_EQ("\n" + draw(timeline, {.width = 20, .steps = 1, .max_ranks = 3}), R"(
rank  3 ##############......  70 %
rank 40 #################### 100 %
rank 50 ####................  20 %
        |0 s      |50 s
61 ranks that compute more than some of these and less than others are not shown
# compute  % hidden communication  ~ exposed communication  . wait  % computing
)");
}

TEST(TimelinePicture, TheScaleSuitsAnyLengthOfTime) {
  const auto scale_of = [](double seconds) {
    Timeline timeline(1);
    timeline.end_step(0, seconds);
    const std::string text = draw(timeline, {.width = 40, .steps = 1});
    const size_t begin = text.find('\n') + 1;
    return text.substr(begin + 7, text.find('\n', begin) - begin - 7);
  };
  EXPECT_EQ(scale_of(40e-9), "|0 ns     |10 ns    |20 ns    |30 ns");
  EXPECT_EQ(scale_of(1e-3), "|0 us               |500 us");
  EXPECT_EQ(scale_of(7.0), "|0 s       |2 s        |4 s       |6 s");
  EXPECT_EQ(scale_of(0.9), "|0 ms                 |500 ms");
  EXPECT_EQ(scale_of(36000), "|0 s       |10000 s   |20000 s");
}

TEST(TimelinePicture, NothingRecordedIsSaidSo) {
  EXPECT_EQ(picture(Timeline(4)), "no step has ended yet\n");
  EXPECT_THROW(picture(Timeline(4), {.width = 1}), UsageError);
}

}  // namespace
}  // namespace lockstep::distributed::virtual_cluster

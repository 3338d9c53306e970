#include "apps/bench/against/block.h"
#include "apps/bench/against/table.h"
#include "core/check.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <set>

#include "apps/bench/measure.h"
#include "apps/bench/presets.h"
#include "apps/recommender/dlrm.h"
#include "test_paths.h"

namespace lockstep::apps {
namespace {

using test::error_of;
using Of = Mark::Of;
using Bound = Mark::Bound;

Results printed(const std::string& out, double wall_s = 0) {
  ChildOutcome outcome;
  outcome.out = out;
  outcome.wall_s = wall_s;
  return Results(outcome);
}

Row row(std::vector<double> ours, std::vector<double> peer, std::optional<Mark> mark = {},
        RowPlan::Ratio ratio = RowPlan::Ratio::speed) {
  Row out;
  out.plan.what = "work";
  out.plan.name = "work-1";
  out.plan.unit = "ms";
  out.plan.ratio = ratio;
  out.plan.mark = mark;
  out.ours = std::move(ours);
  out.peer = std::move(peer);
  return out;
}

TEST(BenchResults, AreTheJsonLinesAmongOthers) {
  const Results results = printed(
      "warning: something\n"
      "{\"name\": \"step GPT 4x128\", \"median_ms\": 2.5, \"torch\": \"2.13.0\"}\n"
      "[1]\n{broken\n"
      "{\"name\": \"step\", \"median_ms\": 7}\n"
      "{\"name\": \"other\", \"median_ms\": null, \"text\": \"3\"}",
      4);
  EXPECT_EQ(results.find({"step", "median_ms"}), 2.5);
  EXPECT_EQ(results.find({"", "median_ms"}), 2.5);
  EXPECT_EQ(results.find({"", kWallSeconds}), 4);
  EXPECT_EQ(results.word("torch"), "2.13.0");
  EXPECT_EQ(results.largest("step", "median_ms"), 7);
  EXPECT_FALSE(results.find({"other", "median_ms"}));
  EXPECT_FALSE(results.find({"other", "text"}));
  EXPECT_FALSE(results.find({"steps", "median_ms"}));
  EXPECT_FALSE(results.largest("none", "median_ms"));
  EXPECT_EQ(printed("").word("torch"), "");
}

TEST(BenchTable, RatioIsOfMedians) {
  EXPECT_EQ(row({2, 100, 1}, {6, 5, 6}).ratio(), 3);  // 6 / 2: how many times as fast
  EXPECT_EQ(row({2, 4}, {6, 12}).ratio(), 3);         // of an even number: the mean of the middle
  EXPECT_EQ(row({2}, {8}, {}, RowPlan::Ratio::part).ratio(), 0.25);
  EXPECT_FALSE(row({2}, {}).ratio());
  EXPECT_FALSE(row({0}, {2}).ratio());
}

TEST(BenchTable, AMarkIsMetFromItsValueOn) {
  const Mark fast{Of::ratio, Bound::at_least, 2}, small{Of::ratio, Bound::at_most, 0.5},
      none{Of::ours, Bound::at_most, 0};
  EXPECT_EQ(row({1}, {2}, fast).met({}), true);
  EXPECT_EQ(row({1}, {1.99}, fast).met({}), false);
  EXPECT_EQ(row({1}, {2}, small, RowPlan::Ratio::part).met({}), true);
  EXPECT_EQ(row({1.01}, {2}, small, RowPlan::Ratio::part).met({}), false);
  EXPECT_EQ(row({0}, {}, none).met({}), true);
  EXPECT_EQ(row({0.05}, {}, none).met({}), false);
  EXPECT_FALSE(row({1}, {}, fast).met({}));
  EXPECT_FALSE(row({1}, {2}).met({}));
}

TEST(BenchTable, AFasterRunThatLearnsLessIsNoMatch) {
  Row run = row({1}, {2}, Mark{Of::ratio, Bound::at_most, 0.6}, RowPlan::Ratio::part);
  run.plan.loss = RowPlan::Loss{{}, {}, 0.03};
  run.peer_loss = {1.90};
  run.our_loss = {1.92};
  EXPECT_EQ(run.met({}), true);
  run.our_loss = {1.94};
  EXPECT_EQ(run.met({}), false);
  run.our_loss = {1.5};
  EXPECT_EQ(run.met({}), true);
}

TEST(BenchTable, ALimitIsTheBestOfAllTries) {
  std::vector<LimitLine> limits;
  add_peaks(limits, printed("{\"name\": \"peaks loop fp32 fma\", \"gflops\": 100}\n"
                            "{\"name\": \"peaks matmul fp32 1x2x3\", \"gflops\": 110}\n"
                            "{\"name\": \"peaks matmul bf16 1x2x3\", \"gflops\": 90}\n"
                            "{\"name\": \"peaks triad cached\", \"gb_per_s\": 10}\n"
                            "{\"name\": \"peaks triad streaming\", \"gb_per_s\": 20}\n"));
  add_peaks(limits, printed("{\"name\": \"peaks loop fp32 fma\", \"gflops\": 120}\n"
                            "{\"name\": \"peaks in place\", \"gb_per_s\": 15}\n"
                            "{\"name\": \"peaks matmul fp32 3x2x1\", \"gflops\": 80}\n"));
  ASSERT_EQ(limits.size(), 5u);
  EXPECT_EQ(value_of(limits, Limit::fp32), 120);
  EXPECT_EQ(value_of(limits, Limit::memory), 20);
  // fp32 would do for bf16, too.
  EXPECT_EQ(value_of(limits, Limit::bf16), 120);
  EXPECT_FALSE(value_of({}, Limit::memory));

  Row shared = row({1}, {1}, Mark{Of::share, Bound::at_least, 0.8});
  shared.plan.share = RowPlan::Share{{}, Limit::memory};
  shared.shared = {16, 15, 17};
  EXPECT_EQ(shared.share(limits), 0.8);
  EXPECT_EQ(shared.met(limits), true);
  EXPECT_FALSE(shared.share({}));
  EXPECT_FALSE(shared.met({}));
}

Table small_table() {
  Table table;
  table.heading = {"A machine."};
  table.context = {{"rounds", 1}};
  table.limits = {{"triad", "memory", "GB/s", Limit::memory, 12.345}};
  Row first = row({12.345}, {123.45}, Mark{Of::ratio, Bound::at_least, 3});
  first.plan.share = RowPlan::Share{{}, Limit::memory};
  first.shared = {6.1725};
  first.our_loss = {1.9};
  table.rows = {first, row({0}, {}, Mark{Of::ours, Bound::at_most, 0})};
  table.notes = {"A note."};
  return table;
}

TEST(BenchTable, AsMarkdown) {
  EXPECT_EQ(as_markdown(small_table()),
            "A machine.\n"
            "\n"
            "| work | Lockstep | PyTorch | ratio | mark | share of the limit |\n"
            "|---|---|---|---|---|---|\n"
            "| work | 12.3 ms (1.900) | 123 ms | 10.00 | ≥ 3, met | 50 % |\n"
            "| work | 0 ms | – | – | 0, met | – |\n"
            "\n"
            "| limit of this machine | measured |\n"
            "|---|---|\n"
            "| memory | 12.3 GB/s |\n"
            "\n"
            "A note.\n");
}

TEST(BenchTable, AsJsonKeepsEveryRound) {
  const auto json = as_json(small_table());
  EXPECT_EQ(json["rounds"], 1);
  EXPECT_EQ(json["limits"][0]["value"], 12.345);
  EXPECT_EQ(json["rows"][0]["rounds"]["pytorch"], nlohmann::json({123.45}));
  EXPECT_EQ(json["rows"][0]["met"], true);
  EXPECT_DOUBLE_EQ(json["rows"][0]["ratio"].get<double>(), 10);
  EXPECT_TRUE(json["rows"][1]["pytorch"].is_null());
}

TEST(BenchTable, AsTextLinesColumnsUp) {
  const std::string text = as_text(small_table());
  std::set<size_t> columns;
  for (const char* cell : {"PyTorch", "123 ms"})
    columns.insert(text.find(cell) - text.rfind('\n', text.find(cell)));
  EXPECT_EQ(columns.size(), 1u);
}

TEST(BenchBlock, IsReplacedAndNothingElse) {
  const std::string before = std::string("# Title\n") + kBlockBegin + " … -->\n",
                    after = std::string(kBlockEnd) + "\nmore\n";
  EXPECT_EQ(with_block(before + "old\n" + after, "new\n", "a.md"), before + "\nnew\n\n" + after);
  const std::string once = with_block(before + after, "new\n", "a.md");
  EXPECT_EQ(with_block(once, "new\n", "a.md"), once);
}

TEST(BenchBlock, MustBeThereOnce) {
  const std::string begin = std::string(kBlockBegin) + " -->\n",
                    end = std::string(kBlockEnd) + "\n";
  for (const std::string& document :
       {std::string(), std::string("text\n"), begin, end, end + begin, begin + begin + end})
    EXPECT_NE(error_of([&] { with_block(document, "new\n", "a.md"); }).find("--update a.md"),
              std::string::npos)
        << document;
}

TEST(BenchContests, NamesPickRowsByTheirBeginning) {
  const auto all = make_contests({.text = "text"});
  const auto some = only(all, {"allreduce-4", "memory"});
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].rows.size(), 1u);
  EXPECT_EQ(some[0].rows[0].name, "memory-6x384");
  EXPECT_EQ(some[1].rows.size(), 3u);
  EXPECT_EQ(only(all, {}).size(), all.size());
  EXPECT_NE(error_of([&] { only(all, {"nanno"}); }).find("nano-fp32"), std::string::npos);
  EXPECT_NE(error_of([&] { only(all, {""}); }), "");
  EXPECT_EQ(make_contests({}).size(), all.size() - 2);  // no text, no whole runs
}

std::map<std::string, std::string> options_in(const std::vector<std::string>& words) {
  std::map<std::string, std::string> out;
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i].rfind("--", 0) == 0) out[words[i]] = words[i + 1];
  return out;
}

TEST(BenchContests, BothSidesAreToldTheSame) {
  for (const Contest& contest : make_contests({.threads = 3, .repeats = 7, .text = "a text"})) {
    if (contest.peer.empty()) continue;
    const auto ours = options_in(contest.ours), peer = options_in(contest.peer);
    EXPECT_FALSE(peer.empty());
    for (const auto& [name, value] : peer)
      EXPECT_TRUE(name == "--val-windows" || ours.at(name) == value) << contest.peer[0] << name;
    for (const auto& [name, value] : {std::pair("--threads", "3"), {"--repeats", "7"}})
      EXPECT_TRUE(!ours.contains(name) || ours.at(name) == value) << contest.ours[1] << name;
  }
}

TEST(BenchContests, PeersAreThereAndKnowTheirOptions) {
  for (const Contest& contest : make_contests({.text = "a text"})) {
    if (contest.peer.empty()) continue;
    const std::string script =
        test::slurp(LOCKSTEP_SOURCE_DIR "/benchmarks/peers/" + contest.peer[0]);
    for (const auto& [name, value] : options_in(contest.peer))
      EXPECT_NE(script.find("\"" + name + "\""), std::string::npos) << contest.peer[0] << name;
  }
}

TEST(BenchContests, PeersHaveTheSameModels) {
  const std::string script = test::slurp(LOCKSTEP_SOURCE_DIR "/benchmarks/peers/gpt.py");
  for (const Preset& p : presets()) {
    const std::string line = fmt::format(
        "\"{}\": dict(vocab={}, layers={}, heads={}, width={}, context={}, batch={})", p.name,
        p.config.vocab, p.config.layers, p.config.heads, p.config.width, p.config.context, p.batch);
    EXPECT_NE(script.find(line), std::string::npos) << line;
  }
}

// The words are not asked for but stand in the script: whoever changes one side looks at the other.
TEST(BenchContests, TheRecommenderOfThePeerIsOurs) {
  const DlrmConfig c;
  const std::string script = test::slurp(LOCKSTEP_SOURCE_DIR "/benchmarks/peers/dlrm.py");
  for (const std::string& line :
       {fmt::format("DENSE, WIDTH = {}, {}", c.dense, c.dim),
        fmt::format("BOTTOM, TOP = ({}), ({})", fmt::join(c.bottom, ", "), fmt::join(c.top, ", ")),
        fmt::format("\"--tables\", type=int, default={}", BenchOptions{}.tables)})
    EXPECT_NE(script.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace lockstep::apps

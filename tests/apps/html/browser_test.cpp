#include "apps/compare/report_model.h"
#include "apps/report/html/page.h"
#include "apps/report/runs_page.h"
#include "tests/apps/html/hostile_names.h"
#include "tests/apps/html/sample_report.h"
#include "tests/apps/report/made_run.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdlib>
#include <limits>

#include "test_paths.h"

namespace lockstep::apps {
namespace {

constexpr int kNoBrowser = 77;  // what check_report.py exits with

struct Checked {
  int code;
  std::string said;
  bool no_browser() const { return code == kNoBrowser || code == 127; }
};

// Nothing on the console, nothing asked of a network, every value drawn, no scrolling sideways on a
// phone, contrast, sorting, legends and read-outs by keyboard, in light, dark and on paper.
Checked check_in_a_browser(const std::string& page, const std::string& option = "") {
  test::TempFolder folder;
  test::spill(folder / "report.html", page);
  std::string command = "python3 -B " LOCKSTEP_SOURCE_DIR "/tests/apps/html/check_report.py " +
                        (folder / "report.html") + " " + option;
  const char* pictures = std::getenv("LOCKSTEP_PICTURES");  // a folder, to look at them
  if (pictures != nullptr) command += std::string(" --pictures ") + pictures;
  command += " > " + (folder / "said") + " 2>&1";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, test::slurp(folder / "said")};
}

TEST(SlowReportInABrowser, IsDrawnAndUsable) {
  const Checked checked = check_in_a_browser(report_page(test::sample_report("a")));
  if (checked.no_browser()) GTEST_SKIP() << checked.said;
  EXPECT_EQ(checked.code, 0) << checked.said;
}

TEST(SlowReportInABrowser, O52_HostileNamesDoNothing) {
  std::string all;
  for (const std::string& name : test::hostile_names()) all += name + " ";
  const Checked checked = check_in_a_browser(report_page(test::sample_report(all)));
  if (checked.no_browser()) GTEST_SKIP() << checked.said;
  EXPECT_EQ(checked.code, 0) << checked.said;
}

TEST(SlowReportInABrowser, RunsAreDrawnAndUsable) {
  test::TempFolder folder;
  test::make_run(folder / "real", 900, [](StepRecord& record) {
    if (record.step == 300) record.loss = std::numeric_limits<double>::infinity();
  });
  test::make_run(folder / "modelled", 60, [](StepRecord& record) {
    record.more["virtual_s"] = 2.0 * static_cast<double>(record.step);
  });
  const Checked checked =
      check_in_a_browser(runs_page(read_runs({folder / "real", folder / "modelled"})));
  if (checked.no_browser()) GTEST_SKIP() << checked.said;
  EXPECT_EQ(checked.code, 0) << checked.said;
}

// Lists that are empty, constant, huge, tiny, not finite, negative or long, names that are, too.
TEST(SlowReportInABrowser, OddChartsAreDrawnToo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double most = std::numeric_limits<double>::max();
  const std::vector<std::vector<double>> lists{{},
                                               {1},
                                               {nan},
                                               {2, 2, 2},
                                               {most, -most, 1},
                                               {1e-310, 5e-324, 0},
                                               {-3, 4, nan},
                                               {1e6, 1e6 + 1e-3},
                                               {-1e-5, 1e5},
                                               {123456789, 123456790, 123456791}};
  Page page("Odd", "");
  page.chart({.title = "no series"});
  for (const ChartKind kind :
       {ChartKind::line, ChartKind::scatter, ChartKind::bar, ChartKind::histogram})
    for (const Scale scale : {Scale::linear, Scale::log})
      for (const std::vector<double>& list : lists) {
        Chart chart{.title = "odd", .kind = kind, .x = {"x", "", scale}, .y = {"y", "s", scale}};
        Series series{.name = "s", .y = list};
        const bool by_category = kind == ChartKind::bar || kind == ChartKind::histogram;
        for (const double x : list) {
          if (by_category)
            chart.categories.push_back(std::string(30, 'c'));
          else
            series.x.push_back(x);
        }
        chart.series = {series, {.name = "none"}, series};
        page.chart(chart);
      }
  Chart many{.title = "many", .kind = ChartKind::bar};
  for (int i = 0; i < 200; ++i) many.categories.push_back("category " + std::to_string(i));
  for (int s = 0; s < 16; ++s)
    many.series.push_back({.name = std::string(200, 'n'), .y = std::vector<double>(200, s)});
  page.chart(many);
  const Checked checked = check_in_a_browser(page.finish(), "--drawn");
  if (checked.no_browser()) GTEST_SKIP() << checked.said;
  EXPECT_EQ(checked.code, 0) << checked.said;
}

// The check itself: a page with one fault of each kind.
TEST(SlowReportInABrowser, FaultsAreSeen) {
  std::string page = report_page(test::sample_report("a"));
  const auto spoil = [&](const std::string& part, const std::string& with) {
    const size_t at = page.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    page.replace(at, part.size(), with);
  };
  spoil("default-src &#39;none&#39;;", "img-src *;");
  spoil("<h4>", "<h6>low</h6><img src=\"http://127.0.0.1:9/x.png\"><h4>");
  spoil("<pre", "<p style=\"width:500px;color:#999\">wide and pale</p><pre");
  spoil("head.setAttribute('aria-sort'", "head.setAttribute('aria-sorted'");
  spoil("if (!hidden.delete(s)) hidden.add(s);", "hidden.delete(s);");
  spoil("const rows = [];", "console.error('oh'); const rows = [];");
  spoil("segment.map((p) =>", "segment.slice(1).map((p) =>");
  spoil("Escape: -1", "Escape: 0");
  const Checked checked = check_in_a_browser(page);
  if (checked.no_browser()) GTEST_SKIP() << checked.said;
  EXPECT_EQ(checked.code, 1) << checked.said;
  for (const char* complaint :
       {"asked for http", "leave a level out", "px wide", "contrast", "aria-sort None",
        "legend 0: not false", "console", "values", "Escape leaves"})
    EXPECT_NE(checked.said.find(complaint), std::string::npos) << complaint << "\n" << checked.said;
}

}  // namespace
}  // namespace lockstep::apps

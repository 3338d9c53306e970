#include "apps/report/run_charts.h"
#include "apps/report/runs_page.h"
#include "tests/apps/html/hostile_names.h"
#include "tests/apps/program.h"
#include "tests/apps/report/made_run.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

using test::make_run;
using test::slurp;
using test::TempFolder;

TEST(RunCharts, DrawLossAgainstStepSamplesBytesTimeAndModelledTime) {
  TempFolder folder;
  make_run(folder / "real", 10);
  make_run(folder / "modelled", 10, [](StepRecord& record) {
    record.more["virtual_s"] = 3.0 * static_cast<double>(record.step);
    if (record.step == 4) record.loss = INFINITY;
  });
  const RunCharts charts = chart_runs(read_runs({folder / "real", folder / "modelled"}));
  ASSERT_EQ(charts.training.size(), 5u);
  const std::vector<std::vector<double>> last{{10, 10}, {80, 80}, {0.01, 0.01}, {5, 5}, {0, 30}};
  for (size_t i = 0; i < 5; ++i) {
    const Chart& chart = charts.training[i];
    ASSERT_EQ(chart.series.size(), 2u) << chart.title;
    for (size_t s = 0; s < chart.series.size(); ++s) {
      if (i == 4 && s == 0) {
        EXPECT_TRUE(chart.series[s].y.empty());  // there is none; its colour stays its own
        continue;
      }
      EXPECT_EQ(chart.series[s].y.size(), 10u);
      EXPECT_NEAR(chart.series[s].x.back(), last[i][s], 1e-12) << chart.title;
      EXPECT_DOUBLE_EQ(chart.series[s].y.back(), 0.3);
    }
  }
  EXPECT_TRUE(std::isnan(charts.training[0].series[1].y[3]));  // a gap, at its step
  ASSERT_EQ(charts.validation.size(), 5u);
  EXPECT_EQ(charts.validation[1].series[0].x, (std::vector<double>{40, 80}));
  EXPECT_EQ(charts.validation[1].series[0].y, (std::vector<double>{0.7, 0.35}));
  ASSERT_EQ(charts.others.size(), 1u);
  EXPECT_EQ(charts.others[0].series[1].y, (std::vector<double>{5, 4, 3}));
}

TEST(RunCharts, WithoutModelledTimeThereIsNoSuchChart) {
  TempFolder folder;
  make_run(folder / "a", 3);
  const RunCharts charts = chart_runs(read_runs({folder / "a"}));
  EXPECT_EQ(charts.training.size(), 4u);
  EXPECT_EQ(charts.validation.size(), 0u);  // no evaluation
}

TEST(KnownFaults, O52_RunsWithHostileNamesStayText) {
  TempFolder folder;
  const auto page_of = [&](const std::string& name) {
    make_run(
        folder / "r", 6, [&](StepRecord& record) { record.note = name; }, name);
    std::vector<RunFiles> runs = read_runs({folder / "r", folder / "r"});
    runs[0].name = name;
    runs[0].run["config"][name] = name;
    return runs_page(runs);
  };
  const auto count = [](const std::string& text, const std::string& what) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  const std::string plain = page_of("a");
  for (const std::string& name : test::hostile_names()) {
    const std::string page = page_of(name);
    for (const char* mark : {"<script", "</script", "<!--", "<"})
      EXPECT_EQ(count(page, mark), count(plain, mark)) << mark << " " << name;
  }
}

TEST(ReportCommand, WritesAPageACsvFileAndEventFilesBesideItsText) {
  TempFolder folder;
  make_run(folder / "a", 10);
  make_run(folder / "b", 10);
  const auto plain = test::lockstep({"report", folder / "a", folder / "b"});
  const auto all =
      test::lockstep({"report", folder / "a", folder / "b", "--html", folder / "p.html", "--csv",
                      folder / "m.csv", "--tensorboard", folder / "tb"},
                     "LC_ALL=de_DE.UTF-8");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(all.out, plain.out);
  EXPECT_EQ(slurp(folder / "p.html").substr(0, 15), "<!doctype html>");
  EXPECT_EQ(slurp(folder / "m.csv").substr(0, 9), "run,step,");
  EXPECT_NE(slurp(folder / "tb/b/events.out.tfevents.0000000001.lockstep"), "");
}

TEST(ReportCommand, MistakesAreOneLineAndTheDocumentedCode) {
  TempFolder folder;
  make_run(folder / "a", 2);
  const auto nowhere = test::lockstep({"report", folder / "a", "--html", folder / "no/p.html"});
  EXPECT_EQ(nowhere.code, 3);
  EXPECT_EQ(nowhere.error_lines(), 1) << nowhere.err;
  std::vector<std::string> many{"report"};
  for (int i = 0; i < 17; ++i) many.push_back(folder / "a");
  EXPECT_EQ(test::lockstep(many).code, 2);
  many.insert(many.end(), {"--csv", folder / "m.csv"});
  const auto wide = test::lockstep(many);
  EXPECT_EQ(wide.code, 0) << wide.err;
  EXPECT_EQ(wide.out, "");
}

}  // namespace
}  // namespace lockstep::apps

#include "apps/compare/report_model.h"
#include "apps/report/html/assets.h"
#include "apps/report/html/chart_json.h"
#include "apps/report/html/html_table.h"
#include "apps/report/html/html_text.h"
#include "core/check.h"
#include "tests/apps/html/hostile_names.h"
#include "tests/apps/html/sample_report.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <locale>
#include <regex>

namespace lockstep::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::sample_report;

size_t count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

// Everything that begins an element, ends one or begins a comment, as a browser would see it.
std::vector<size_t> marks_of(const std::string& page) {
  return {count(page, "<script"), count(page, "</script"), count(page, "<!--"),
          count(page, "<"),       count(page, "onload="),  count(page, "onmouseover=")};
}

json charts_of(const std::string& page) {
  const std::string begin = "id=\"charts\">";
  const size_t from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script", from) - from));
}

// What a browser would show of escaped text.
std::string unescaped(std::string text) {
  for (const auto& [code, sign] :
       {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}})
    text = std::regex_replace(text, std::regex(code), sign);
  return text;
}

TEST(KnownFaults, O52_HostileNamesStayText) {
  const std::string plain = report_page(sample_report("a"));
  for (const std::string& name : test::hostile_names()) {
    const std::string page = report_page(sample_report(name));
    const std::vector<size_t> marks = marks_of(page), expected = marks_of(plain);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(marks[i], expected[i]) << i << ": " << name;

    const std::string clean =  // as any JSON of ours
        json::parse(json(name).dump(-1, ' ', false, json::error_handler_t::replace));
    const json charts = charts_of(page);
    EXPECT_EQ(charts[0]["series"][2]["name"], clean) << name;
    EXPECT_EQ(charts[0]["title"], "Validation loss " + clean);
    EXPECT_EQ(charts[3]["categories"][3], clean);

    const std::string shown = html_text(name);
    EXPECT_EQ(count(page, "<strong>"), count(plain, "<strong>"));
    EXPECT_NE(page.find("--out " + shown + "</code>"), std::string::npos) << name;
    EXPECT_EQ(shown.find_first_of("<>\"'"), std::string::npos);
  }
}

TEST(KnownFaults, O52_TextIsShownLiterally) {
  for (const std::string name : {"</script><svg onload=alert(7)>", "<!--<script>",
                                 "\" onmouseover=\"x", "&lt;", "]]>", "$&", "{{x}}", "\\"})
    EXPECT_EQ(unescaped(html_text(name)), name);
  EXPECT_EQ(html_text("a\x01"
                      "b\x7f\r"),
            "a\u2401b\u2421\u240d");
  EXPECT_EQ(html_text("two\nlines\t"), "two\nlines\t");
}

TEST(HtmlText, ReplacesWhatIsNotUtf8AndKeepsWhatIs) {
  const std::string bad = "\uFFFD";
  EXPECT_EQ(html_text("\xff"), bad);
  EXPECT_EQ(html_text("\xc0\xaf"), bad + bad);                      // overlong
  EXPECT_EQ(html_text("\xed\xa0\x80"), bad + bad + bad);            // a lone surrogate
  EXPECT_EQ(html_text("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
  EXPECT_EQ(html_text("x\xe2\x82"), "x" + bad + bad);               // cut off
  EXPECT_EQ(html_text("\xe2\x82<"), bad + bad + "&lt;");            // takes no neighbour along
  for (const std::string good :
       {"é", "€", "\U0001F600", "\u2028", "\uD7FF", "\uE000", "\U0010FFFF"})
    EXPECT_EQ(html_text(good), good);
}

TEST(ScriptJson, CannotEndItsElementAndParsesBack) {
  const ordered_json object{{"</script><!--", "\u2028 & ]]> \x01 \xff"}};
  const std::string text = script_json(object);
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; }));
  EXPECT_EQ(json::parse(text), (nlohmann::json{{"</script><!--", "\u2028 & ]]> \x01 \uFFFD"}}));
}

TEST(KnownFaults, O51_ValuesOfChartsThatAreNotFiniteAreNamed) {
  const Chart chart{.title = "t",
                    .kind = ChartKind::line,
                    .series = {{"s", {1, 2, 3, 4}, {NAN, INFINITY, -INFINITY, 0.1}, {}, {}, {}}}};
  EXPECT_EQ(chart_json(chart)["series"][0]["y"].dump(), R"(["nan","inf","-inf",0.1])");
}

class CommaDecimals : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(KnownFaults, O51_LocaleDoesNotChangeAReport) {
  const std::string plain = report_page(sample_report("a"));
  const std::locale before = std::locale::global(std::locale(std::locale(), new CommaDecimals));
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
    if (std::setlocale(LC_ALL, name) != nullptr) break;
  const std::string local = report_page(sample_report("a"));
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);
  EXPECT_EQ(local, plain);
}

TEST(ChartJson, KeepsNineDigits) {
  const Chart chart{.title = "t",
                    .kind = ChartKind::line,
                    .series = {{"s", {0, 1, 2, 3}, {0.1f, 1e-40, 5e-324, 1.7e308}, {}, {}, {}}}};
  const ordered_json y = chart_json(chart)["series"][0]["y"];
  EXPECT_EQ(y[0].dump(), "0.100000001");
  EXPECT_EQ(y[0].get<float>(), 0.1f);
  EXPECT_EQ(y[1].get<double>(), 1e-40);
  EXPECT_EQ(y[2].get<double>(), 5e-324);
  EXPECT_EQ(y[3].get<double>(), 1.7e308);
}

TEST(ChartJson, ThinnedLinesKeepTheirExtremesTheirEndsInOrderAndTheirGaps) {
  Chart chart{.title = "t", .kind = ChartKind::line, .series = {{.name = "s"}}};
  Series& series = chart.series[0];
  for (int i = 0; i < 10'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 1234 ? 50 : i == 4321 ? -50 : i == 777 ? NAN : std::sin(i));
  }
  const ordered_json thinned = chart_json(chart);
  const std::vector<double> x = thinned["series"][0]["x"];
  EXPECT_EQ(thinned["points"], 10'000);
  EXPECT_LE(x.size(), 605u);
  EXPECT_TRUE(std::ranges::is_sorted(x));
  for (const double kept : {1234., 4321., 777.})
    EXPECT_NE(std::ranges::find(x, kept), x.end()) << kept;
  EXPECT_EQ(x.front(), 0);
  EXPECT_EQ(x.back(), 9999);
  chart.x.scale = Scale::log;  // each step at first, many in a column at the end
  const std::vector<double> log_x = chart_json(chart)["series"][0]["x"];
  EXPECT_LE(log_x.size(), 605u);
  EXPECT_EQ(std::vector<double>(log_x.begin(), log_x.begin() + 5),
            (std::vector<double>{0, 1, 2, 3, 4}));

  chart.series[0].x.resize(600);
  chart.series[0].y.resize(600);
  EXPECT_EQ(chart_json(chart)["points"], 0);
  EXPECT_EQ(chart_json(chart)["series"][0]["x"].size(), 600u);
}

TEST(ChartJson, ListsOfDifferentLengthsAreAnErrorThatNamesTheSeries) {
  Chart chart{.title = "t", .kind = ChartKind::line, .series = {{"s", {1, 2}, {1}, {}, {}, {}}}};
  EXPECT_THROW(chart_json(chart), UsageError);
  chart.series[0] = {"s", {1, 2}, {1, 2}, {1}, {1}, {}};
  EXPECT_THROW(chart_json(chart), UsageError);
  chart.kind = ChartKind::bar;
  chart.series[0] = {"s", {}, {1, 2}, {}, {}, {}};
  EXPECT_THROW(chart_json(chart), UsageError);
  chart.categories = {"a", "b"};
  EXPECT_NO_THROW(chart_json(chart));
}

TEST(FigureText, HasFourDigitsThatCount) {
  EXPECT_EQ(figure_text(0.0342936), "0.03429");
  EXPECT_EQ(figure_text(-12.5), "-12.5");
  EXPECT_EQ(figure_text(1568), "1568");
  EXPECT_EQ(figure_text(123456789), "1.23e+08");
  EXPECT_EQ(figure_text(1e-5), "1e-05");
  EXPECT_EQ(figure_text(0), "0");
  EXPECT_EQ(figure_text(NAN), "not a number");
  EXPECT_EQ(figure_text(-INFINITY), "-infinite");
}

TEST(ReportPage, SaysEverythingWithoutItsScript) {
  const std::string page = report_page(sample_report("a"));
  const std::string plain = page.substr(0, page.find("<script"));
  for (const char* said :
       {"does not agree", "agrees in part", "1.00 x, 0.98 to 1.02", "reproduced in part",
        "not testable here", "inconclusive at this scale", "modelled", "arithmetic",
        "lockstep compare --only A2d", "Reproduced: index below 1.25", "1.05 to 1.15", "n = 5",
        "not a number", "Use error feedback.", "extension", "FP32 a"})
    EXPECT_NE(plain.find(said), std::string::npos) << said;
}

TEST(ReportPage, LoadsNothing) {
  const std::string page = report_page(sample_report("a"));
  EXPECT_NE(page.find("default-src &#39;none&#39;"), std::string::npos);
  for (const char* loader : {"src=", "@import", "url(http", "fetch(", "XMLHttpRequest"})
    EXPECT_EQ(page.find(loader), std::string::npos) << loader;
}

// They are put into elements as they are.
TEST(Assets, CannotEndTheElementsTheyStandIn) {
  for (const std::string_view asset : {asset::page_css, asset::charts_css, asset::scale_js,
                                       asset::readout_js, asset::chart_js, asset::tables_js}) {
    EXPECT_GT(asset.size(), 100u);
    EXPECT_EQ(asset.find("</s"), std::string_view::npos);
    EXPECT_EQ(asset.find("<!--"), std::string_view::npos);
    EXPECT_EQ(asset.find("innerHTML"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace lockstep::apps

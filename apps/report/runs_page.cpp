#include "apps/report/runs_page.h"

#include "apps/cli/parse.h"
#include "apps/report/html/html_table.h"
#include "apps/report/html/page.h"
#include "apps/report/run_charts.h"
#include "apps/report/run_table.h"
#include "core/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep::apps {
namespace {

using nlohmann::json;

std::string word(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>()
                            : found->dump(-1, ' ', false, json::error_handler_t::replace);
}

json part(const RunFiles& run, const char* key) {
  const auto found = run.run.find(key);
  return found != run.run.end() && found->is_object() ? *found : json::object();
}

// Each machine once, and which runs it made.
std::vector<std::pair<std::string, std::string>> machines(const std::vector<RunFiles>& runs) {
  std::map<std::string, std::string> made;  // machine, runs
  for (const RunFiles& run : runs) {
    const json machine = part(run, "machine"), versions = part(run, "versions");
    const std::string text = fmt::format(
        "{}, {} cores, {}; lockstep {} {}", word(machine, "processor"), word(machine, "cores"),
        word(machine, "isa"), word(versions, "lockstep"), word(versions, "build"));
    std::string& names = made[text];
    names += (names.empty() ? "" : ", ") + run.name;
  }
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [machine, names] : made)
    facts.emplace_back(made.size() == 1 ? "machine" : fmt::format("machine of {}", names), machine);
  return facts;
}

void write_table(HtmlWriter& html, const std::vector<RunFiles>& runs) {
  const RunTable table = tabulate(runs);
  std::vector<std::string> columns{"run"};
  std::vector<const RunTable::Row*> rows;  // the charts show the curves
  for (const RunTable::Row& row : table.rows)
    if (row.of == RunTable::Row::Of::run) rows.push_back(&row), columns.push_back(row.label);
  HtmlTable(html, "A row for each run; a dash: unknown", columns, [&](HtmlTable& out) {
    for (size_t r = 0; r < runs.size(); ++r)
      out.row([&] {
        out.cell(runs[r].name);
        for (const RunTable::Row* row : rows)
          out.cell(row->cells[r], std::isfinite(row->values[r]) ? number_text(row->values[r]) : "");
      });
  });
}

// Options that are not the same in all runs; where a run writes is its own business.
void write_differences(HtmlWriter& html, const std::vector<RunFiles>& runs) {
  std::map<std::string, std::vector<std::string>> options;
  for (size_t r = 0; r < runs.size(); ++r) {
    const json config = part(runs[r], "config");
    for (const auto& [name, value] : config.items()) {
      auto& values = options[name];
      values.resize(runs.size(), "-");
      values[r] = word(config, name.c_str());
    }
  }
  options.erase("out");
  std::erase_if(options, [](const auto& option) {
    return std::ranges::adjacent_find(option.second, std::not_equal_to{}) == option.second.end();
  });
  if (options.empty()) {
    html.element("p", {}, runs.size() == 1 ? "There is one run." : "All options are the same.");
    return;
  }
  std::vector<std::string> columns{"option"};
  for (const RunFiles& run : runs) columns.push_back(run.name);
  HtmlTable(html, "Options that are not the same in all runs", columns, [&](HtmlTable& out) {
    for (const auto& [name, values] : options)
      out.row([&] {
        out.cell(name);
        for (const std::string& value : values) out.cell(value);
      });
  });
}

void write_charts(Page& page, const std::string& id, const std::string& title,
                  const std::vector<Chart>& charts) {
  if (charts.empty()) return;
  page.section(id, title, [&] {
    page.body().element("div", {{"class", "charts"}}, [&] {
      for (const Chart& chart : charts) page.chart(chart);
    });
  });
}

}  // namespace

std::string runs_page(const std::vector<RunFiles>& runs) {
  Page page(runs.size() == 1 ? fmt::format("Run {}", runs[0].name) : "Runs side by side",
            "Samples and losses are those of all ranks, or of rank 0 alone where ranks do not wait "
            "for each other. Where a run diverged and fell back, the steps that it made again "
            "stand twice.");
  page.facts(machines(runs));
  page.section("runs", "What they came to", [&] { write_table(page.body(), runs); });
  const RunCharts charts = chart_runs(runs);
  write_charts(page, "training", "Training loss", charts.training);
  write_charts(page, "validation", "Validation loss", charts.validation);
  write_charts(page, "others", "Further curves", charts.others);
  page.section("options", "Where their options differ",
               [&] { write_differences(page.body(), runs); });
  return page.finish();
}

}  // namespace lockstep::apps

#include "apps/compare/report_model.h"
#include "apps/cli/parse.h"
#include "apps/report/html/html_table.h"
#include "apps/report/html/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::apps {
namespace {

// How a finding looks: never by colour alone. In the order of enum Finding.
struct Look {
  const char* word;
  const char* sign;
  const char* style;
};
constexpr std::array<Look, 5> kFindings{{{"reproduced", "✓", "badge yes"},
                                         {"reproduced in part", "◐", "badge part"},
                                         {"not reproduced", "✗", "badge no"},
                                         {"inconclusive at this scale", "?", "badge open"},
                                         {"not testable here", "–", "badge open"}}};
// In the order of enum Agreement.
constexpr std::array<Look, 4> kAgreements{{{"agrees", "✓", "badge yes"},
                                           {"agrees in part", "◐", "badge part"},
                                           {"does not agree", "✗", "badge no"},
                                           {"not decided", "?", "badge open"}}};
constexpr std::array<const char*, 3> kProvenances{"measured", "modelled", "arithmetic"};

template <class Looks, class Enum>
const auto& of(const Looks& looks, Enum value) {
  return looks.at(static_cast<size_t>(value));
}

void badge(HtmlWriter& html, const Look& look) {
  html.element("span", {{"class", look.style}}, [&] {
    html.element("span", {{"aria-hidden", "true"}}, look.sign);
    html.text(std::string(" ") + look.word);
  });
}

void judgement(HtmlWriter& html, const Judgement& judgement) {
  badge(html, of(kFindings, judgement.finding));
  html.text(" ");
  html.element("span", {{"class", "provenance"}}, of(kProvenances, judgement.provenance));
}

std::string anchor(const ClaimSection& claim) { return "claim-" + claim.id; }

// The n-th finding sorts before the next.
std::string finding_key(Finding finding) { return std::to_string(static_cast<int>(finding)); }

class CompareWriter {
 public:
  explicit CompareWriter(const CompareReport& report)
      : report_(report), page_(report.title, report.summary), html_(page_.body()) {}

  std::string page() {
    about();
    if (!report_.tables.empty())
      page_.section("documents", "The documents' comparison, measured", [&] {
        for (const ComparisonTable& table : report_.tables) documents_table(table);
      });
    page_.section("verdicts", "Verdicts", [&] { board(); });
    if (!report_.contradictions.empty())
      page_.section("contradictions", "Where the documents disagree", [&] { contradictions(); });
    claims("claims", "Claims", ClaimSection::Kind::claim);
    claims("extensions", "Beyond the documents", ClaimSection::Kind::extension);
    return page_.finish();
  }

 private:
  void about() {
    std::vector<std::pair<std::string, std::string>> facts{{"date", report_.date},
                                                           {"command", report_.command}};
    facts.insert(facts.end(), report_.machine.begin(), report_.machine.end());
    page_.facts(facts);
  }

  void documents_table(const ComparisonTable& table) {
    std::vector<std::string> columns{"strategy"};
    columns.insert(columns.end(), table.columns.begin(), table.columns.end());
    HtmlTable(html_, table.title, columns, [&](HtmlTable& rows) {
      for (const ComparisonRow& row : table.rows)
        rows.row([&] {
          rows.cell(row.name);
          for (const ComparisonCell& cell : row.cells)
            rows.cell([&] { compared(cell); }, std::to_string(static_cast<int>(cell.agreement)));
        });
    });
  }

  void compared(const ComparisonCell& cell) {
    const auto line = [&](const char* name, const std::string& value) {
      html_.element("span", {{"class", "compared"}}, [&] {
        html_.element("span", {{"class", "name"}}, name);
        html_.text(" " + (value.empty() ? std::string("nothing") : value));
      });
    };
    line("claimed", cell.claimed);
    line("measured", cell.measured);
    badge(html_, of(kAgreements, cell.agreement));
  }

  void board() {
    tally();
    HtmlTable(html_, "All claims and what became of them",
              {"claim", "what it says", "direction", "size"}, [&](HtmlTable& rows) {
                for (const ClaimSection& claim : report_.claims)
                  rows.row([&] { board_row(rows, claim); });
              });
  }

  // How many claims of the documents met which end.
  void tally() {
    html_.element("ul", {{"class", "tally"}}, [&] {
      for (size_t i = 0; i < kFindings.size(); ++i) {
        const auto count = std::ranges::count_if(report_.claims, [&](const ClaimSection& claim) {
          return claim.kind == ClaimSection::Kind::claim &&
                 static_cast<size_t>(claim.verdict.direction.finding) == i;
        });
        if (count == 0) continue;
        html_.element("li", {}, [&] {
          html_.element("strong", {}, std::to_string(count));
          html_.text(" ");
          badge(html_, kFindings[i]);
        });
      }
    });
  }

  void board_row(HtmlTable& rows, const ClaimSection& claim) {
    rows.cell(
        [&] {
          html_.element("a", {{"href", fmt::format("#{}", anchor(claim))}}, claim.id);
          if (claim.kind == ClaimSection::Kind::extension) extension_mark();
        },
        claim.id);
    rows.cell(claim.statement);
    rows.cell([&] { judgement(html_, claim.verdict.direction); },
              finding_key(claim.verdict.direction.finding));
    if (const auto& size = claim.verdict.size)
      rows.cell([&] { judgement(html_, *size); }, finding_key(size->finding));
    else
      rows.cell("none claimed");
  }

  void extension_mark() {
    html_.text(" ");
    html_.element("span", {{"class", "extension"}}, "extension");
  }

  void contradictions() {
    HtmlTable(html_, "Who is right, when", {"question", "document A", "document B", "measured"},
              [&](HtmlTable& rows) {
                for (const Contradiction& c : report_.contradictions)
                  rows.row([&] {
                    rows.cell(c.question);
                    rows.cell(c.a);
                    rows.cell(c.b);
                    rows.cell([&] {
                      html_.text(c.answer + " ");
                      if (!c.claim.empty())
                        html_.element("a", {{"href", fmt::format("#claim-{}", c.claim)}}, c.claim);
                    });
                  });
              });
  }

  void claims(const std::string& id, const std::string& title, ClaimSection::Kind kind) {
    const auto is_kind = [&](const ClaimSection& claim) { return claim.kind == kind; };
    if (std::ranges::none_of(report_.claims, is_kind)) return;
    page_.section(id, title, [&] {
      for (const ClaimSection& claim : report_.claims)
        if (is_kind(claim)) section_of(claim);
    });
  }

  void section_of(const ClaimSection& claim) {
    const std::string heading = anchor(claim) + "-title";
    html_.element("article",
                  {{"id", anchor(claim)}, {"class", "claim"}, {"aria-labelledby", heading}}, [&] {
                    html_.element("h3", {{"id", heading}}, [&] {
                      html_.element("span", {{"class", "id"}}, claim.id);
                      html_.text(" " + claim.statement);
                      if (claim.kind == ClaimSection::Kind::extension) extension_mark();
                    });
                    if (!claim.source.empty())
                      html_.element("p", {{"class", "source"}}, "Source: " + claim.source);
                    verdict_of(claim.verdict);
                    paragraph("What to take from it", claim.takeaway, "takeaway");
                    for (const Chart& chart : claim.charts) page_.chart(chart);
                    figures_of(claim);
                    paragraph("What was done", claim.done, "");
                    commands_of(claim);
                    paragraph("Rule, written before the run", claim.rule, "rule");
                    html_.element("p", {{"class", "back"}}, [&] {
                      html_.element("a", {{"href", "#verdicts"}}, "All verdicts");
                    });
                  });
  }

  void paragraph(const char* title, const std::string& text, const char* style) {
    if (text.empty()) return;
    html_.element("h4", {}, title);
    html_.element("p", {{"class", style}}, text);
  }

  void verdict_of(const Verdict& verdict) {
    html_.element("dl", {{"class", "verdict"}}, [&] {
      const auto entry = [&](const char* name, const Judgement& said) {
        html_.element("div", {}, [&] {
          html_.element("dt", {}, name);
          html_.element("dd", {}, [&] {
            judgement(html_, said);
            if (!said.reason.empty()) html_.element("p", {}, said.reason);
          });
        });
      };
      entry("direction", verdict.direction);
      if (verdict.size) entry("size", *verdict.size);
    });
  }

  void commands_of(const ClaimSection& claim) {
    if (claim.commands.empty()) return;
    html_.element("h4", {}, "To repeat it");
    std::string lines;
    for (const std::string& command : claim.commands) lines += command + "\n";
    html_.element("pre", {{"tabindex", "0"}, {"aria-label", "commands that repeat " + claim.id}},
                  [&] { html_.element("code", {}, lines); });
  }

  void figures_of(const ClaimSection& claim) {
    if (claim.figures.empty()) return;
    html_.element("h4", {}, "Figures");
    HtmlTable(html_, "What was found for " + claim.id, {"figure", "value", "interval", "from"},
              [&](HtmlTable& rows) {
                for (const Figure& figure : claim.figures)
                  rows.row([&] { figure_row(rows, figure); });
              });
  }

  void figure_row(HtmlTable& rows, const Figure& figure) {
    rows.cell(figure.name);
    rows.number(figure.value, figure.unit);
    if (const auto& interval = figure.interval)
      rows.cell(fmt::format("{} to {}", figure_text(interval->low), figure_text(interval->high)),
                number_text(interval->low));
    else
      rows.cell("");
    rows.cell(figure.samples == 0 ? "computed" : fmt::format("n = {}", figure.samples),
              std::to_string(figure.samples));
  }

  const CompareReport& report_;
  Page page_;
  HtmlWriter& html_;
};

}  // namespace

std::string report_page(const CompareReport& report) { return CompareWriter(report).page(); }

}  // namespace lockstep::apps

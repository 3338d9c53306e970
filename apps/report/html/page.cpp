#include "apps/report/html/page.h"

#include "apps/report/html/assets.h"
#include "apps/report/html/chart_json.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

// Nothing may be loaded from anywhere; inline is all there is.
constexpr const char* kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'";

void write_head(HtmlWriter& html, const std::string& title) {
  html.element("head", {}, [&] {
    html.begin("meta", {{"charset", "utf-8"}});
    html.begin("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", kPolicy}});
    html.begin("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
    html.begin("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
    html.begin("link", {{"rel", "icon"}, {"href", "data:,"}});  // or a browser asks for one
    html.element("title", {}, title);
    html.element("style", {}, [&] {
      html.verbatim(asset::page_css);
      html.verbatim(asset::charts_css);
    });
  });
}

}  // namespace

void Page::section(const std::string& id, const std::string& title,
                   const std::function<void()>& inside) {
  sections_.emplace_back(id, title);
  const std::string heading = id + "-title";
  body_.element("section", {{"id", id}, {"aria-labelledby", heading}}, [&] {
    body_.element("h2", {{"id", heading}}, title);
    inside();
  });
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_.element("dl", {{"class", "about"}}, [&] {
    for (const auto& [name, value] : facts) {
      if (value.empty()) continue;
      body_.element("div", {}, [&] {
        body_.element("dt", {}, name);
        body_.element("dd", {},
                      [&] { body_.element(name == "command" ? "code" : "span", {}, value); });
      });
    }
  });
}

void Page::chart(const Chart& chart) {
  const std::string number = std::to_string(charts_.size());
  charts_.push_back(chart_json(chart));
  const std::string caption = "chart-" + number;
  const HtmlWriter::Attributes attributes{
      {"class", "chart"}, {"data-chart", number}, {"aria-labelledby", caption}};
  body_.element("figure", attributes, [&] {
    body_.element("figcaption", {{"id", caption}}, chart.title);
    body_.element("noscript", {}, "The page's script draws this chart; scripts are off here.");
  });
}

std::string Page::finish() const {
  HtmlWriter html;
  html.verbatim("<!doctype html>\n");
  html.element("html", {{"lang", "en"}}, [&] {
    write_head(html, title_);
    html.element("body", {}, [&] {
      html.element("a", {{"class", "skip"}, {"href", "#content"}}, "Skip to the content");
      html.element("header", {}, [&] {
        html.element("h1", {}, title_);
        if (!lead_.empty()) html.element("p", {{"class", "lead"}}, lead_);
      });
      if (sections_.size() > 1)
        html.element("nav", {{"aria-label", "Sections"}}, [&] {
          html.element("ul", {}, [&] {
            for (const auto& [id, title] : sections_)
              html.element("li", {}, [&] {
                html.element("a", {{"href", fmt::format("#{}", id)}}, title);
              });
          });
        });
      html.element("main", {{"id", "content"}, {"tabindex", "-1"}},
                   [&] { html.verbatim(body_.written()); });
      html.element("script", {{"type", "application/json"}, {"id", "charts"}},
                   [&] { html.verbatim(script_json(charts_)); });
      html.element("script", {{"type", "module"}}, [&] {  // one scope for all of them
        for (const std::string_view script :
             {asset::scale_js, asset::readout_js, asset::chart_js, asset::tables_js})
          html.verbatim(script);
      });
    });
  });
  html.verbatim("\n");
  return html.written();
}

}  // namespace lockstep::apps

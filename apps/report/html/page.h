#pragma once
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "apps/compare/chart.h"
#include "apps/report/html/html_writer.h"

namespace lockstep::apps {

/// One HTML file that opens without network: style and scripts inside, a policy that forbids it to
/// load anything, charts as JSON that chart.js draws.
class Page {
 public:
  Page(std::string title, std::string lead) : title_(std::move(title)), lead_(std::move(lead)) {}

  /// What stands between the title and the end.
  HtmlWriter& body() { return body_; }
  /// A section with its heading; the links at the top of the page lead there.
  void section(const std::string& id, const std::string& title,
               const std::function<void()>& inside);
  /// Names and values, under the title say; those without a value are left out. The value of
  /// "command" is set as code.
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  /// A figure that the page's script fills in.
  void chart(const Chart& chart);

  /// The whole file.
  std::string finish() const;

 private:
  std::string title_, lead_;
  HtmlWriter body_;
  std::vector<std::pair<std::string, std::string>> sections_;  // id, title
  nlohmann::ordered_json charts_ = nlohmann::ordered_json::array();
};

}  // namespace lockstep::apps

#include "apps/bench/against/results.h"

#include "apps/cli/parse.h"

#include <cmath>

namespace lockstep::apps {
namespace {

using nlohmann::json;

std::optional<double> number(const json& line, const std::string& key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool is_called(const json& line, const std::string& begin) {
  if (begin.empty()) return true;
  const auto name = line.find("name");
  return name != line.end() && name->is_string() &&
         name->get_ref<const std::string&>().compare(0, begin.size(), begin) == 0;
}

}  // namespace

Results::Results(const ChildOutcome& outcome) : wall_s_(outcome.wall_s) {
  for (const std::string& text : split(outcome.out, '\n')) {
    json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) lines_.push_back(std::move(line));
  }
}

std::optional<double> Results::find(const Figure& figure) const {
  if (figure.key == kWallSeconds) return wall_s_;
  for (const json& line : lines_)
    if (is_called(line, figure.line)) return number(line, figure.key);
  return std::nullopt;
}

std::optional<double> Results::largest(const std::string& name, const std::string& key) const {
  std::optional<double> most;
  for (const json& line : lines_)
    if (is_called(line, name))
      if (const auto value = number(line, key); value && value > most) most = value;
  return most;
}

std::string Results::word(const std::string& key) const {
  if (lines_.empty()) return "";
  const auto found = lines_.front().find(key);
  return found != lines_.front().end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace lockstep::apps

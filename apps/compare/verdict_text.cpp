#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace lockstep::apps {
namespace {

constexpr std::array<std::string_view, 5> kFindings{"reproduced", "reproduced in part",
                                                    "not reproduced", "inconclusive at this scale",
                                                    "not testable here"};
constexpr std::array<std::string_view, 3> kProvenances{"measured", "modelled", "arithmetic"};

template <class Enum, size_t n>
std::optional<Enum> named(const std::array<std::string_view, n>& names, std::string_view name) {
  for (size_t i = 0; i < n; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Finding finding) { return kFindings[static_cast<size_t>(finding)]; }
std::string_view name_of(Provenance provenance) {
  return kProvenances[static_cast<size_t>(provenance)];
}
std::optional<Finding> finding_named(std::string_view name) {
  return named<Finding>(kFindings, name);
}
std::optional<Provenance> provenance_named(std::string_view name) {
  return named<Provenance>(kProvenances, name);
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "undefined" : value > 0 ? "inf" : "-inf";
  if (value == std::round(value) && std::abs(value) < 1e9) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string text_of(const Figure& figure) {
  std::string text = fmt::format("{} {}{}{}", figure.name, short_number(figure.value),
                                 figure.unit.empty() ? "" : " ", figure.unit);
  if (figure.interval)
    text += fmt::format(" ({} to {}, n = {})", short_number(figure.interval->low),
                        short_number(figure.interval->high), figure.samples);
  else if (figure.samples > 0)
    text += fmt::format(" (n = {})", figure.samples);
  return text;
}

}  // namespace lockstep::apps

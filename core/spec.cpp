#include "core/spec.h"

#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep {
namespace {

// The key of a number that stands alone, until name_number().
constexpr const char* kNumberAlone = "a number alone";

template <class T>
bool parse(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
}

template <class T>
std::string bounds(T min, T max, T lowest, T highest) {
  if (min == lowest && max == highest) return "";
  if (max == highest) return fmt::format(" >= {}", min);
  if (min == lowest) return fmt::format(" <= {}", max);
  return fmt::format(" in {}..{}", min, max);
}

}  // namespace

Spec::Spec(const std::string& text) : written_(text) {
  const size_t colon = text.find(':');
  name_ = text.substr(0, colon);
  check(!name_.empty(), "[core.spec] '{}'; expected name or name:key=value,key=value", text);
  if (colon == std::string::npos) return;
  for (size_t begin = colon + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string setting = text.substr(begin, end - begin);
    const size_t equals = setting.find('=');
    std::string key = setting.substr(0, equals);
    std::string value = equals == std::string::npos ? "on" : setting.substr(equals + 1);
    check(!key.empty() && !value.empty(), "[core.spec] '{}'; expected key=value, got '{}'", text,
          setting);
    if (double number = 0; equals == std::string::npos && parse(key, number)) {
      value = std::move(key);
      key = kNumberAlone;
    }
    check(!has(key), "[core.spec] '{}': {} is set twice", text, key);
    settings_.emplace_back(std::move(key), std::move(value));
    begin = end + 1;
  }
}

const std::string* Spec::find(std::string_view key) const {
  for (const auto& [name, value] : settings_)
    if (name == key) return &value;
  return nullptr;
}

void Spec::fail(std::string_view key, std::string_view expected) const {
  throw UsageError(fmt::format("[core.spec] '{}': {}; expected {}, got '{}'", written_, key,
                               expected, *find(key)));
}

int64_t Spec::integer(std::string_view key, int64_t fallback, IntegerRange range) const {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  int64_t value = 0;
  if (!parse(*text, value) || value < range.min || value > range.max)
    fail(key, "an integer" + bounds(range.min, range.max, IntegerRange{}.min, IntegerRange{}.max));
  return value;
}

double Spec::number(std::string_view key, double fallback, NumberRange range) const {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  double value = 0;
  if (!parse(*text, value) || !std::isfinite(value) || value < range.min || value > range.max)
    fail(key, "a number" + bounds(range.min, range.max, NumberRange{}.min, NumberRange{}.max));
  return value;
}

bool Spec::flag(std::string_view key, bool fallback) const {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  if (*text != "on" && *text != "off") fail(key, "on or off");
  return *text == "on";
}

std::string Spec::text(std::string_view key, std::string_view fallback) const {
  const std::string* text = find(key);
  return text == nullptr ? std::string(fallback) : *text;
}

std::string Spec::text(std::string_view key, std::string_view fallback,
                       std::initializer_list<std::string_view> choices) const {
  const std::string value = text(key, fallback);
  if (has(key) && std::find(choices.begin(), choices.end(), value) == choices.end())
    fail(key, fmt::format("{}", fmt::join(choices, "|")));
  return value;
}

void Spec::name_number(std::string_view name) {
  for (auto& [key, value] : settings_) {
    if (key != kNumberAlone) continue;
    check(!has(name), "[core.spec] '{}': {} is set twice", written_, name);
    key = name;
  }
}

void Spec::expect_keys(const std::vector<std::string_view>& known) const {
  for (const auto& [key, value] : settings_) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string& got = key == kNumberAlone ? value : key;
    throw UsageError(
        known.empty()
            ? fmt::format("[core.spec] '{}': {} has no settings, got '{}'", written_, name_, got)
            : fmt::format("[core.spec] '{}': unknown setting; expected {}, got '{}'", written_,
                          fmt::join(known, ", "), got));
  }
}

}  // namespace lockstep

#include "distributed/comm/virtual_cluster/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

namespace lockstep::distributed::virtual_cluster {
namespace {

/// A value in this unit, times `times`, divided by `per`, is one in the base unit. Both are exact,
/// and at most one differs from 1 (bits: 8), so that 20us is the double next to 2e-5.
struct Unit {
  std::string_view name;
  double times, per;
  double to_base(double value) const { return value * times / per; }
  double from_base(double value) const { return value * per / times; }
};

constexpr Unit kTimes[] = {{"s", 1, 1}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}};
constexpr Unit kRates[] = {{"Tbit", 1e12, 8}, {"Gbit", 1e9, 8}, {"Mbit", 1e6, 8}, {"Kbit", 1e3, 8},
                           {"bit", 1, 8},     {"B", 1, 1},      {"KB", 1e3, 1},   {"MB", 1e6, 1},
                           {"GB", 1e9, 1},    {"TB", 1e12, 1}};

std::optional<double> read(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  const std::string_view unit(stop, static_cast<size_t>(end - stop));
  for (const Unit& u : units)
    if (u.name == unit && std::isfinite(u.to_base(value))) return u.to_base(value);
  return std::nullopt;
}

/// The first of `units` (largest first) in which the value is at least 1 and comes back exactly.
std::string write(double value, std::span<const Unit> units, const Unit& always_exact) {
  for (const Unit& u : units)
    if (const double in_unit = u.from_base(value); in_unit >= 1 && u.to_base(in_unit) == value)
      return fmt::format("{}{}", in_unit, u.name);
  return fmt::format("{}{}", value, always_exact.name);
}

}  // namespace

std::optional<double> read_seconds(std::string_view text) {
  if (text == "0") return 0.0;
  return read(text, kTimes);
}

std::optional<double> read_rate(std::string_view text) {
  if (text.ends_with("/s")) text.remove_suffix(2);
  return read(text, kRates);
}

std::string write_seconds(double seconds) {
  if (seconds == 0) return "0s";
  return write(seconds, kTimes, kTimes[0]);
}

std::string write_rate(double bytes_per_second) {
  return write(bytes_per_second, std::span(kRates).first(5), kRates[5]);
}

}  // namespace lockstep::distributed::virtual_cluster

#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Words of the command line as values. Independent of the locale: 1.5 is one and a half
/// everywhere.
namespace lockstep::apps {

/// The whole text as an integer ("2000", "1e6" too when it is exact); nothing when it is none or
/// does not fit in 64 bits.
std::optional<int64_t> parse_integer(std::string_view text);
/// The whole text as a finite number.
std::optional<double> parse_number(std::string_view text);
/// The shortest text that reads back as the same number.
std::string number_text(double value);

std::vector<std::string> split(std::string_view text, char separator);

/// The candidate that a mistyped word most likely meant; "" when none is close.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep::apps

#pragma once
#include <optional>
#include <string>
#include <string_view>

/// Times and rates as a person writes them: a number and its unit, without a space. Prefixes are
/// decimal (1 KB = 1000 B), and bits are not bytes: 10Gbit is 1.25e9 bytes per second, 10GB 10e9.
namespace lockstep::distributed::virtual_cluster {

inline constexpr std::string_view kTimeUnits = "ns, us, ms, s";
inline constexpr std::string_view kRateUnits = "bit, Kbit, Mbit, Gbit, Tbit, B, KB, MB, GB, TB";

/// Seconds of `100ms`; a plain 0 is a time, too. Nothing where it does not read as a finite time.
std::optional<double> read_seconds(std::string_view text);
/// Bytes per second of `10Gbit` or `10Gbit/s`. Nothing where it does not read as a finite rate.
std::optional<double> read_rate(std::string_view text);

/// With the unit that suits its size; `read_…` of it gives the same bits.
std::string write_seconds(double seconds);
std::string write_rate(double bytes_per_second);

}  // namespace lockstep::distributed::virtual_cluster

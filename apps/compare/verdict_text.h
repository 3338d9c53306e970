#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "apps/compare/verdict.h"

/// Verdicts in words, the same in files, on the terminal and in sentences.
namespace lockstep::apps {

std::string_view name_of(Finding finding);        ///< "reproduced in part"
std::string_view name_of(Provenance provenance);  ///< "measured"
std::optional<Finding> finding_named(std::string_view name);
std::optional<Provenance> provenance_named(std::string_view name);

/// "gap of async 0.0312 nats (0.0287 to 0.0337, n = 5)"
std::string text_of(const Figure& figure);
/// Four significant digits, more only for whole numbers.
std::string short_number(double value);

}  // namespace lockstep::apps

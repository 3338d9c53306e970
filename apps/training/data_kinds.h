#pragma once
#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/parse.h"
#include "core/check.h"

namespace lockstep::apps {

/// What `--data KIND:…` can name in one app. A kind of data is a line in a table of these.
template <class Data, class Options>
struct DataKind {
  const char *name, *help;
  Data (*load)(const Options&);
};

/// The kind that a spec begins with; a UsageError says what was `expected`.
template <class Kind>
const Kind& data_kind(std::span<const Kind> kinds, const std::string& spec,
                      std::string_view expected) {
  const std::string name = spec.substr(0, spec.find(':'));
  std::vector<std::string> names;
  for (const Kind& kind : kinds) {
    if (name == kind.name) return kind;
    names.emplace_back(kind.name);
  }
  const std::string best = closest(name, names);
  throw UsageError(fmt::format("--data: expected {}, got '{}'{}", expected, spec,
                               best.empty() ? "" : fmt::format("; did you mean {}?", best)));
}

template <class Kind>
std::string data_kinds_help(std::span<const Kind> kinds) {
  std::string text;
  for (const Kind& kind : kinds) text += kind.help;
  return text;
}

}  // namespace lockstep::apps

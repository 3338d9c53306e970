#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Bounds of a number in a spec, both included.
struct IntegerRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};
struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};

/// A choice with its settings as one word of the command line: `name` or
/// `name:key=value,key=value`. A key alone means `key=on`; a number alone is the value of the
/// setting that comes first in the list of what there is: `delayed:2` is `delayed:steps=2`. Values
/// are read by the one who owns them, with a type, a default and bounds; whatever does not fit is a
/// UsageError that quotes the spec.
class Spec {
 public:
  Spec(const std::string& text);  // NOLINT: a spec is written as a string wherever one is asked for
  Spec(const char* text) : Spec(std::string(text)) {}

  const std::string& name() const { return name_; }
  /// As it was written.
  const std::string& written() const { return written_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  int64_t integer(std::string_view key, int64_t fallback, IntegerRange range = {}) const;
  double number(std::string_view key, double fallback, NumberRange range = {}) const;
  /// `on` or `off`.
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  /// One of `choices`.
  std::string text(std::string_view key, std::string_view fallback,
                   std::initializer_list<std::string_view> choices) const;
  /// Gives the number that stands alone, if there is one, its name. UsageError when that is set,
  /// too.
  void name_number(std::string_view key);
  /// UsageError naming `known` when another key is set.
  void expect_keys(const std::vector<std::string_view>& known) const;

 private:
  const std::string* find(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

  std::string written_, name_;
  std::vector<std::pair<std::string, std::string>> settings_;
};

}  // namespace lockstep

#pragma once
#include "core/check.h"
#include "core/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// One setting of a registered class, for the help text: what it means and, in parentheses, its
/// default.
struct OptionDoc {
  std::string_view name, text;
};

/// The classes derived from Base that a spec string can name. Each registers itself from its own
/// file, so adding one changes no other file:
///
///     const Register<SyncStrategy, LocalSgd> registered{
///         "local_sgd", "average parameters every H steps", {{"every", "H, steps between averages
///         (8)"}}};
///
/// Derived is constructed from (const Spec&, Args...). Only documented settings are accepted; the
/// first one's name may be left out where it is a number.
/// `Base::kKind` ("strategy") names the family in messages. Registration happens at load time, on
/// one thread; afterwards the registry is only read.
template <class Base, class... Args>
class Registry {
 public:
  struct Entry {
    std::string name, summary;
    std::vector<OptionDoc> options;
    std::unique_ptr<Base> (*make)(const Spec&, Args...);
  };

  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  void add(Entry entry) {
    const auto at =
        std::lower_bound(entries_.begin(), entries_.end(), entry,
                         [](const Entry& a, const Entry& b) { return a.name < b.name; });
    check(at == entries_.end() || at->name != entry.name,
          "[core.registry] {} {} is registered twice", Base::kKind, entry.name);
    entries_.insert(at, std::move(entry));
  }

  /// Sorted by name.
  const std::vector<Entry>& entries() const { return entries_; }

  /// UsageError listing what there is for a name, or a setting, that is not. A number that stands
  /// alone in `spec` gets its name.
  const Entry& find(Spec& spec) const {
    for (const Entry& entry : entries_) {
      if (entry.name != spec.name()) continue;
      std::vector<std::string_view> keys;
      for (const OptionDoc& option : entry.options) keys.push_back(option.name);
      if (!keys.empty()) spec.name_number(keys.front());
      spec.expect_keys(keys);
      return entry;
    }
    std::vector<std::string_view> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    throw UsageError(fmt::format("[core.registry] unknown {}; expected {}, got '{}'", Base::kKind,
                                 fmt::join(names, ", "), spec.name()));
  }

  std::unique_ptr<Base> make(Spec spec, Args... args) const {
    const Entry& entry = find(spec);
    return entry.make(spec, std::forward<Args>(args)...);
  }

  /// What `--<kind> help` prints: a line for each name, and indented ones for its settings.
  std::string help() const {
    std::string text;
    for (const Entry& entry : entries_) {
      text += fmt::format("{:<15} {}\n", entry.name, entry.summary);
      for (const OptionDoc& option : entry.options)
        text += fmt::format("  {:<15} {}\n", option.name, option.text);
    }
    return text;
  }

 private:
  std::vector<Entry> entries_;
};

/// Registers Derived while the program or the shared library is loaded.
template <class Base, class Derived, class... Args>
struct Register {
  Register(std::string name, std::string summary, std::vector<OptionDoc> options = {}) {
    Registry<Base, Args...>::instance().add(
        {std::move(name), std::move(summary), std::move(options),
         [](const Spec& spec, Args... args) -> std::unique_ptr<Base> {
           return std::make_unique<Derived>(spec, std::forward<Args>(args)...);
         }});
  }
};

}  // namespace lockstep

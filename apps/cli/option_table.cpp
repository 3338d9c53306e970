#include "apps/cli/option_table.h"

#include "apps/cli/parse.h"
#include "core/check.h"
#include "core/file.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr size_t kLeftColumn = 26;
constexpr int64_t kLargestConfig = int64_t{1} << 20;

[[noreturn]] void refuse(const std::string& name, const std::string& expected,
                         const std::string& got, const std::string& advice = "") {
  throw UsageError(
      fmt::format("{}: expected {}, got '{}'{}", name, expected, printable(got), advice));
}

std::string did_you_mean(const std::string& word, const Words& candidates) {
  const std::string best = closest(word, candidates);
  return best.empty() ? "" : fmt::format("; did you mean {}?", best);
}

std::string shown(const OptionTable::Integers& range) {
  if (range.max == INT64_MAX) return fmt::format(">= {}", range.min);
  return fmt::format("{}..{}", range.min, range.max);
}
// For the help, where "at most a trillion" would only be noise.
std::string shown_briefly(const OptionTable::Integers& range) {
  return range.max >= 1'000'000'000'000 ? fmt::format(">= {}", range.min) : shown(range);
}
std::string shown(const OptionTable::Numbers& range) {
  if (!range.shown.empty()) return range.shown;
  if (range.max >= 1e30) return fmt::format(">= {}", range.min);
  return fmt::format("{}..{}", range.min, range.max);
}

double number_within(const std::string& name, const OptionTable::Numbers& range,
                     const std::string& word) {
  const auto value = parse_number(word);
  if (!value || !(*value >= range.min && *value <= range.max))
    refuse(name, "a number " + shown(range), word);
  return *value;
}

// One word unless the option was given several times.
const std::string& single(const std::string& name, const Words& words) {
  check(words.size() == 1, "{} was given {} times; expected once", name, words.size());
  return words[0];
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

OptionTable::OptionTable() : app_(std::make_unique<CLI::App>()) {
  app_->set_help_flag();
  app_->allow_config_extras(CLI::config_extras_mode::error);
}
OptionTable::~OptionTable() = default;

void OptionTable::group(std::string title) { group_ = std::move(title); }

void OptionTable::add(const std::string& name, const std::string& placeholder, std::string help,
                      Take take, std::function<ordered_json()> value) {
  rows_.push_back({group_, name + " " + placeholder, std::move(help), name, std::move(value)});
  app_->add_option(
          name, CLI::callback_t([this, name, take = std::move(take)](const CLI::results_t& words) {
            for (const std::string& word : words)  // `--batch --steps 5`: the value was forgotten
              if (word.rfind("--", 0) == 0 && is_name(word))
                throw UsageError(
                    fmt::format("{}: expected a value, got the option {}", name, word));
            // CLI11 marks "{}" as an empty list; here it is a word like any other.
            take(words == Words{"{}", "%%"} ? Words{"{}"} : words);
            return true;
          }))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void OptionTable::integer(const std::string& name, int64_t& value, Integers range,
                          const std::string& help) {
  add(
      name, "N", fmt::format("{} ({}; {})", help, value, shown_briefly(range)),
      [&value, name, range](const Words& words) {
        const auto number = parse_integer(single(name, words));
        if (!number || *number < range.min || *number > range.max)
          refuse(name, "an integer " + shown(range), words[0]);
        value = *number;
      },
      [&value] { return ordered_json(value); });
}

void OptionTable::number(const std::string& name, double& value, Numbers range,
                         const std::string& help) {
  add(
      name, "X", fmt::format("{} ({}; {})", help, number_text(value), shown(range)),
      [&value, name, range](const Words& words) {
        value = number_within(name, range, single(name, words));
      },
      [&value] { return ordered_json(value); });
}

void OptionTable::pair(const std::string& name, std::array<double, 2>& value, Numbers range,
                       const std::string& help) {
  add(
      name, "A,B",
      fmt::format("{} ({},{}; {})", help, number_text(value[0]), number_text(value[1]),
                  shown(range)),
      [&value, name, range](const Words& words) {
        const std::string& word = single(name, words);
        const Words parts = split(word, ',');
        if (parts.size() != 2) refuse(name, "two numbers with a comma between", word);
        for (size_t i = 0; i < 2; ++i)
          value[i] = number_within(name, range, std::string(trimmed(parts[i])));
      },
      [&value] { return ordered_json(value); });
}

void OptionTable::integers(const std::string& name, std::vector<int64_t>& values, Integers range,
                           const std::string& help) {
  add(
      name, "N,…", fmt::format("{} ({}; {})", help, fmt::join(values, ","), shown_briefly(range)),
      [&values, name, range](const Words& words) {
        const std::string& word = single(name, words);
        values.clear();
        for (const std::string& part : split(word, ',')) {
          const auto number = parse_integer(trimmed(part));
          if (!number || *number < range.min || *number > range.max)
            refuse(name, fmt::format("integers {} with commas between", shown(range)), word);
          values.push_back(*number);
        }
      },
      [&values] { return ordered_json(values); });
}

void OptionTable::choice(const std::string& name, std::string& value, Words choices,
                         const std::string& help) {
  const std::string all = fmt::format("{}", fmt::join(choices, "|"));
  add(
      name, all.size() + name.size() < 22 ? all : "NAME",
      all.size() + name.size() < 22
          ? fmt::format("{} ({})", help, value)
          : fmt::format("{}: {} ({})", help, fmt::join(choices, ", "), value),
      [&value, name, choices](const Words& words) {
        const std::string& word = single(name, words);
        if (std::find(choices.begin(), choices.end(), word) == choices.end())
          refuse(name, fmt::format("{}", fmt::join(choices, ", ")), word,
                 did_you_mean(word, choices));
        value = word;
      },
      [&value] { return ordered_json(value); });
}

void OptionTable::on_off(const std::string& name, bool& value, const std::string& help) {
  add(
      name, "on|off", fmt::format("{} ({})", help, value ? "on" : "off"),
      [&value, name](const Words& words) {
        const std::string& word = single(name, words);
        if (word == "on" || word == "true")
          value = true;
        else if (word == "off" || word == "false")
          value = false;
        else
          refuse(name, "on or off", word);
      },
      [&value] { return ordered_json(value ? "on" : "off"); });
}

void OptionTable::text(const std::string& name, std::string& value, const std::string& placeholder,
                       const std::string& help) {
  add(
      name, placeholder, value.empty() ? help : fmt::format("{} ({})", help, value),
      [&value, name](const Words& words) { value = single(name, words); },
      [&value] { return ordered_json(value); });
}

void OptionTable::flag(const std::string& name, bool& value, const std::string& help) {
  rows_.push_back({group_, name, help, name, nullptr});
  app_->add_flag(name, value);
}

void OptionTable::positional(Words& values, const std::string& placeholder,
                             const std::string& help) {
  rows_.push_back({group_, placeholder, help, "", nullptr});
  positional_usage_ += " " + placeholder;
  app_->add_option("positional" + std::to_string(rows_.size()), values)
      ->expected(0, 1000)
      ->allow_extra_args();
}

void OptionTable::lists(const std::string& name, std::function<std::string()> help) {
  lists_.emplace_back(name, std::move(help));
}

void OptionTable::config_file() {
  rows_.push_back({group_, "--config FILE",
                   "options from a file, `lr = 1e-3` a line; the command line wins", "--config",
                   nullptr});
  app_->set_config("--config")->expected(1);
  // A value is one value, as on the command line: commas make no list of it.
  app_->get_config_formatter_base()->arrayDelimiter('\x1f');
}

// CLI11 takes what it can use of a file and passes over the rest; here every line must be
// understood.
void OptionTable::check_config_file(const Words& arguments) const {
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) path = arguments[i + 1];
    if (arguments[i].rfind("--config=", 0) == 0) path = arguments[i].substr(9);
  }
  if (path.empty() || !is_name("--config")) return;
  std::string text;
  try {
    text = read_file(path, kLargestConfig);
  } catch (const SystemError& e) {
    throw SystemError(e.fault(), fmt::format("--config: {}", e.what()));
  }
  Words seen;
  for (const std::string& line : split(text, '\n')) {
    const std::string_view words = trimmed(line);
    if (words.empty() || words[0] == '#' || words[0] == ';') continue;
    std::string name(trimmed(words.substr(0, words.find('='))));
    if (name.rfind("--", 0) != 0) name = "--" + name;
    check(is_name(name) && name != "--config", "unknown option '{}' in the --config file{}",
          printable(name), did_you_mean(name, names()));
    check(std::find(seen.begin(), seen.end(), name) == seen.end(),
          "{} was given twice in the --config file; expected once", name);
    seen.push_back(std::move(name));
  }
}

bool OptionTable::is_name(const std::string& word) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return row.name == word; });
}

std::vector<std::string> OptionTable::names() const {
  Words all{"--help"};
  for (const Row& row : rows_)
    if (!row.name.empty()) all.push_back(row.name);
  return all;
}

bool OptionTable::parse(const Words& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end() ||
      std::find(arguments.begin(), arguments.end(), "-h") != arguments.end())
    return false;
  const auto unknown = [&](const std::string& word, const std::string& where) {
    if (word.rfind('-', 0) != 0 && where.empty())
      return UsageError(fmt::format("unexpected argument '{}'; expected options", printable(word)));
    const std::string name = word.substr(0, word.find('='));
    return UsageError(fmt::format("unknown option '{}'{}{}", printable(name), where,
                                  did_you_mean(name, names())));
  };
  check_config_file(arguments);
  try {
    Words reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
    app_->parse(reversed);
    return true;
  } catch (const CLI::ExtrasError& e) {
    const Words left = app_->remaining();
    // An option that is not known leaves its value behind too: name the option.
    const auto option = std::find_if(left.begin(), left.end(),
                                     [](const std::string& w) { return w.rfind("-", 0) == 0; });
    throw left.empty() ? UsageError(e.what())
                       : unknown(option == left.end() ? left.front() : *option, "");
  } catch (const CLI::FileError& e) {
    throw SystemError(Fault::file, fmt::format("--config: {}", e.what()));
  } catch (const CLI::ConfigError& e) {
    const std::string text = e.what();
    throw unknown(fmt::format("--{}", text.substr(text.rfind(' ') + 1)), " in the --config file");
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what(), name = text.substr(0, text.find(':'));
    throw UsageError(fmt::format("{}: expected a value, got nothing", name));
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
}

bool OptionTable::given(const std::string& name) const { return app_->count(name) > 0; }

ordered_json OptionTable::values() const {
  ordered_json all = ordered_json::object();
  for (const Row& row : rows_)
    if (row.value) {
      std::string key = row.name.substr(2);
      std::replace(key.begin(), key.end(), '-', '_');
      all[key] = row.value();
    }
  return all;
}

std::string OptionTable::help() const {
  std::string text, group;
  for (const Row& row : rows_) {
    if (row.group != group) text += fmt::format("{}:\n", group = row.group);
    text += row.left.size() < kLeftColumn - 2
                ? fmt::format("  {:<{}}{}\n", row.left, kLeftColumn - 2, row.text)
                : fmt::format("  {}  {}\n", row.left, row.text);
  }
  return text;
}

}  // namespace lockstep::apps

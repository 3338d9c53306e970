#pragma once
#include <nlohmann/json.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::apps {

/// The options of one command: each writes into a variable whose value so far is its default,
/// checks its range, and appears in the help and in run.json without being named a second time.
/// Numbers do not depend on the locale. A value that does not fit is a UsageError naming option,
/// expected, got.
class OptionTable {
 public:
  OptionTable();
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  struct Integers {
    int64_t min, max;
  };
  struct Numbers {
    double min, max;
    std::string shown;  ///< "0 <= b < 1" where min..max would not do
  };

  /// Options added from here on appear under this title.
  void group(std::string title);
  void integer(const std::string& name, int64_t& value, Integers range, const std::string& help);
  void number(const std::string& name, double& value, Numbers range, const std::string& help);
  /// "0.9,0.999"
  void pair(const std::string& name, std::array<double, 2>& value, Numbers range,
            const std::string& help);
  /// "512,256": as many as are given, one at least.
  void integers(const std::string& name, std::vector<int64_t>& values, Integers range,
                const std::string& help);
  void choice(const std::string& name, std::string& value, std::vector<std::string> choices,
              const std::string& help);
  /// on|off
  void on_off(const std::string& name, bool& value, const std::string& help);
  void text(const std::string& name, std::string& value, const std::string& placeholder,
            const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  /// What stands on the line without a name, in this order; "…" at the end of the placeholder:
  /// several.
  void positional(std::vector<std::string>& values, const std::string& placeholder,
                  const std::string& help);
  /// `--NAME help` prints a list and ends the program; the option itself is declared as text.
  void lists(const std::string& name, std::function<std::string()> help);
  /// --config FILE with lines `lr = 1e-3`; the command line wins.
  void config_file();

  /// UsageError or SystemError(file); fills the variables. Returns false when --help was asked for.
  bool parse(const std::vector<std::string>& arguments);

  bool given(const std::string& name) const;
  /// All options but flags and --config, with their values now.
  nlohmann::ordered_json values() const;
  /// The lists that `--NAME help` prints.
  const std::vector<std::pair<std::string, std::function<std::string()>>>& listed() const {
    return lists_;
  }
  /// The options in groups, a line each.
  std::string help() const;
  /// "[DIR…]"
  const std::string& positional_usage() const { return positional_usage_; }

 private:
  using Take = std::function<void(const std::vector<std::string>& words)>;
  struct Row {
    std::string group, left, text, name;
    std::function<nlohmann::ordered_json()> value;  // none: not configuration
  };
  void add(const std::string& name, const std::string& placeholder, std::string help, Take take,
           std::function<nlohmann::ordered_json()> value);
  void check_config_file(const std::vector<std::string>& arguments) const;
  bool is_name(const std::string& word) const;
  std::vector<std::string> names() const;

  std::unique_ptr<CLI::App> app_;
  std::vector<Row> rows_;
  std::vector<std::pair<std::string, std::function<std::string()>>> lists_;
  std::string group_, positional_usage_;
};

}  // namespace lockstep::apps

#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/option_table.h"

namespace lockstep::apps {

/// One thing the program does. Commands with options derive their own state from it.
class Command {
 public:
  Command(std::string path, std::string purpose)
      : path_(std::move(path)), purpose_(std::move(purpose)) {}
  virtual ~Command() = default;

  const std::string& path() const { return path_; }        ///< "train transformer"
  const std::string& purpose() const { return purpose_; }  ///< one line
  OptionTable& options() { return options_; }
  const OptionTable& options() const { return options_; }
  /// Lines to copy, without the program's name.
  virtual std::vector<std::string> examples() const { return {}; }
  /// Runs with the options as parsed; returns the exit code.
  virtual int run() = 0;

 protected:
  OptionTable options_;

 private:
  std::string path_, purpose_;
};

using Commands = std::vector<std::unique_ptr<Command>>;

/// Finds the command that the words begin with, parses the rest and runs it.
int run_command(const Commands& commands, const std::vector<std::string>& words);

std::string help_of(const Command& command);

}  // namespace lockstep::apps

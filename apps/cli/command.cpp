#include "apps/cli/command.h"

#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/cli/parse.h"
#include "version.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kExitCodes =
    "exit codes: 0 ok, 1 unexpected, 2 usage, 3 data or file, 4 device or memory, 5 numerical "
    "(NaN),\n"
    "            6 communication, 7 a comparison regressed, 130 and 143 ended by Ctrl-C or "
    "SIGTERM\n";

std::string overview(const Commands& commands) {
  std::string text =
      "Trains one model under every gradient-synchronisation strategy and measures what each "
      "costs.\n\n"
      "usage: lockstep COMMAND [OPTION...]\n\n";
  for (const auto& command : commands)
    text += fmt::format("  {:<20}{}\n", command->path(), command->purpose());
  text +=
      "\n  lockstep COMMAND --help lists a command's options; --sync help, --optimizer help and "
      "their like\n"
      "  list what can be chosen; lockstep --version.\n\n";
  return text + kExitCodes;
}

bool begins_with(const Words& words, const Words& path) {
  return words.size() >= path.size() && std::equal(path.begin(), path.end(), words.begin());
}

// `--sync help` anywhere on the line: of the command that it begins with, else of any.
const std::function<std::string()>* asked_list(const Commands& commands, const Words& words) {
  const std::function<std::string()>* any = nullptr;
  for (const auto& command : commands)
    for (const auto& [name, help] : command->options().listed())
      for (size_t i = 0; i < words.size(); ++i) {
        if (words[i] != name + "=help" &&
            !(words[i] == name && i + 1 < words.size() && words[i + 1] == "help"))
          continue;
        if (begins_with(words, split(command->path(), ' '))) return &help;
        if (any == nullptr) any = &help;
      }
  return any;
}

[[noreturn]] void unknown_command(const Commands& commands, const Words& words) {
  Words paths, next;  // the commands that share the first word, if any
  for (const auto& command : commands) {
    const Words path = split(command->path(), ' ');
    paths.push_back(command->path());
    if (path.size() > 1 && path[0] == words[0]) next.push_back(path[1]);
  }
  if (!next.empty()) {
    check(words.size() > 1 && words[1][0] != '-', "{}: expected one of {}, got nothing", words[0],
          fmt::join(next, ", "));
    const std::string best = closest(words[1], next);
    throw UsageError(fmt::format("{}: expected one of {}, got '{}'{}", words[0],
                                 fmt::join(next, ", "), printable(words[1]),
                                 best.empty() ? "" : fmt::format("; did you mean {}?", best)));
  }
  Words firsts;
  for (const std::string& path : paths) firsts.push_back(split(path, ' ')[0]);
  const std::string best = closest(words[0], firsts);
  throw UsageError(fmt::format("unknown command '{}'; expected {}{}", printable(words[0]),
                               fmt::join(paths, ", "),
                               best.empty() ? "" : fmt::format("; did you mean {}?", best)));
}

}  // namespace

std::string help_of(const Command& command) {
  std::string text =
      fmt::format("{}\nusage: lockstep {}{} [OPTION...]\n{}", command.purpose(), command.path(),
                  command.options().positional_usage(), command.options().help());
  const Words examples = command.examples();
  if (!examples.empty()) text += "examples:\n";
  for (const std::string& example : examples) text += fmt::format("  lockstep {}\n", example);
  return text + kExitCodes;
}

int run_command(const Commands& commands, const Words& given) {
  Words words = given;
  check(!words.empty(), "expected a command, got nothing; lockstep --help lists them");
  if (const auto* list = asked_list(commands, words)) {
    print((*list)());
    return kOk;
  }
  if (words[0] == "--version") {
    print(fmt::format("lockstep {}\n", kVersion));
    return kOk;
  }
  if (words[0] == "help") {  // `help train transformer` is `train transformer --help`
    words.erase(words.begin());
    words.push_back("--help");
  }
  for (const auto& command : commands) {
    const Words path = split(command->path(), ' ');
    if (!begins_with(words, path)) continue;
    if (!command->options().parse(
            {words.begin() + static_cast<int64_t>(path.size()), words.end()})) {
      print(help_of(*command));
      return kOk;
    }
    return command->run();
  }
  if (std::find(words.begin(), words.end(), "--help") != words.end() ||
      std::find(words.begin(), words.end(), "-h") != words.end()) {
    print(overview(commands));
    return kOk;
  }
  check(words[0].rfind("-", 0) != 0,
        "expected a command, got the option '{}'; lockstep --help lists them", printable(words[0]));
  unknown_command(commands, words);
}

}  // namespace lockstep::apps

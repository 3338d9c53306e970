#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/commands.h"
#include "apps/report/machine.h"
#include "distributed/comm/launch.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

class Info final : public Command {
 public:
  Info()
      : Command("info", "version, compiler, instruction set, libraries, backends, cores, memory") {
    options_.group("output");
    options_.flag("--json", json_, "one JSON object instead of lines");
  }
  std::vector<std::string> examples() const override {
    return {"info", "info --json", "--version"};
  }

  int run() override {
    nlohmann::ordered_json all = versions();
    all.update(machine());
    for (const auto& backend : Registry<distributed::Launcher>::instance().entries())
      all["backends"].push_back(backend.name);
    all["devices"] = {"cpu"};
    if (json_) {
      print(all.dump() + "\n");
      return kOk;
    }
    std::string text;
    for (const auto& [name, value] : all.items()) {
      if (value.is_object()) {
        for (const auto& [part, version] : value.items())
          text += fmt::format("{:<14}{} {}\n", name, part, version.get<std::string>());
      } else if (value.is_array()) {
        text +=
            fmt::format("{:<14}{}\n", name, fmt::join(value.get<std::vector<std::string>>(), ", "));
      } else if (name == "memory_bytes") {
        text += fmt::format("{:<14}{:.1f} GiB\n", "memory", value.get<double>() / (1 << 30));
      } else {
        text += fmt::format("{:<14}{}\n", name,
                            value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    print(text);
    return kOk;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> info_command() { return std::make_unique<Info>(); }

}  // namespace lockstep::apps

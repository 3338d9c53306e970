#include "apps/program.h"

#include "apps/cli/command.h"
#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/commands.h"

#include <algorithm>

namespace lockstep::apps {

int run_program(int argc, char** argv) noexcept {
  return guarded([&] {
    prepare_console();
    Commands commands;
    commands.push_back(train_transformer_command());
    commands.push_back(train_recommender_command());
    commands.push_back(train_vision_command());
    commands.push_back(sample_command());
    commands.push_back(data_inspect_command());
    commands.push_back(compare_command());
    commands.push_back(report_command());
    commands.push_back(bench_command());
    commands.push_back(info_command());
    return run_command(commands, {argv + 1, argv + std::max(argc, 1)});
  });
}

}  // namespace lockstep::apps

#pragma once
#include <memory>

#include "apps/cli/command.h"

/// The commands of the program, each from its own folder.
namespace lockstep::apps {

std::unique_ptr<Command> train_transformer_command();
std::unique_ptr<Command> train_recommender_command();
std::unique_ptr<Command> train_vision_command();
std::unique_ptr<Command> sample_command();
std::unique_ptr<Command> data_inspect_command();
std::unique_ptr<Command> report_command();
std::unique_ptr<Command> compare_command();
std::unique_ptr<Command> bench_command();
std::unique_ptr<Command> info_command();

}  // namespace lockstep::apps

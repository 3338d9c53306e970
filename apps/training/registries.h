#pragma once
#include <string>

#include "optim/optimizer.h"

/// What can be chosen by name: the lists that `--NAME help` prints, and checks that a choice can be
/// made before anything is loaded or written. The checks throw UsageError.
namespace lockstep::apps {

std::string strategy_help();
std::string optimizer_help();
std::string table_optimizer_help();
std::string backend_help();
std::string schedule_help();
std::string teach_help();

void check_strategy(const std::string& spec, const std::string& option = "--sync");
void check_compressor(const std::string& text);
void check_optimizer(const std::string& spec, const optim::OptimizerOptions& options);
/// The rate is the first to be refused where the spec is right.
void check_table_optimizer(const std::string& spec, double lr);
/// What a strategy for dense parameters does with embedding tables: the spec of a table strategy.
/// UsageError where it cannot have any.
std::string table_strategy_of(const std::string& sync);
void check_backend(const std::string& spec, int64_t ranks);

}  // namespace lockstep::apps

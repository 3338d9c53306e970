#pragma once
#include <string>

#include "apps/training/train_result.h"

/// What all apps tell of a run on the terminal.
namespace lockstep::apps {

/// A figure of the summary; NaN where it is null or missing, which has() tells apart.
double number(const TrainResult& result, const char* name);
bool has(const TrainResult& result, const char* name);

/// "finished after 200 steps in 3 s: loss 1.2345"
std::string ending_text(const TrainResult& result);
/// "; 2 steps skipped; 900 tokens/s, 200 all-reduces, 1.5 MB on the wire a rank, …" and a newline.
std::string cost_text(const TrainResult& result, const std::string& unit, double per_second);
/// Lines of what there is besides, and where the results are.
std::string reports_text(const TrainResult& result);

}  // namespace lockstep::apps

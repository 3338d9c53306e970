#include "apps/compare/run_result.h"

#include "apps/cli/parse.h"
#include "apps/compare/run_store.h"
#include "apps/report/run_directory.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <limits>

namespace lockstep::apps {
namespace {

using nlohmann::json;

constexpr int64_t kLargestFile = int64_t{1} << 30;

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

json parse_object(const std::string& path, int64_t line, std::string_view text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    throw SystemError(Fault::file, fmt::format("{} line {}: expected a JSON object, got '{}'",
                                               printable(path), line, printable(text, 60)));
  return object;
}

}  // namespace

double number_at(const json& object, const std::string& path) {
  const json* at = &object;
  for (const std::string& key : split(path, '.')) {
    if (!at->is_object()) return std::numeric_limits<double>::quiet_NaN();
    const auto found = at->find(key);
    if (found == at->end()) return std::numeric_limits<double>::quiet_NaN();
    at = &*found;
  }
  return at->is_number() ? at->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

double RunResult::figure(const std::string& path) const {
  return diverged() ? std::numeric_limits<double>::quiet_NaN() : number_at(summary, path);
}

Points RunResult::series(const std::string& path) const {
  const size_t dot = path.find('.');
  Points points;
  for (const json& step : metrics) {
    if (!step.contains(path.substr(0, dot))) continue;
    const double at = number_at(step, "step");
    // A run that fell back to an earlier step made some again.
    while (!points.step.empty() && points.step.back() >= at) {
      points.step.pop_back();
      points.value.pop_back();
    }
    points.step.push_back(at);
    points.value.push_back(number_at(step, path));
  }
  return points;
}

RunResult read_result(const std::string& directory) {
  const std::string told = directory + "/" + kResultFile;
  const json result = parse_object(told, 1, read_file(told, kLargestFile));
  RunResult run;
  const auto text = [&](const char* key) {
    if (!result.contains(key) || !result[key].is_string())
      throw SystemError(Fault::file, fmt::format("{}: missing '{}'", printable(told), key));
    return result[key].get<std::string>();
  };
  run.command = text("command");
  run.failure = text("failure");
  run.key = text("key");
  run.exit_code = static_cast<int>(number_at(result, "exit_code"));
  run.wall_s = number_at(result, "wall_s");

  const std::string summary = directory + "/" + kSummaryFile;
  run.summary = json::object();
  if (!run.diverged() || exists(summary))
    run.summary = parse_object(summary, 1, read_file(summary, kLargestFile));

  const std::string metrics = directory + "/" + kMetricsFile;
  if (run.diverged() && !exists(metrics)) return run;
  const std::string lines = read_file(metrics, kLargestFile);
  int64_t line = 0;
  for (size_t begin = 0, end; (end = lines.find('\n', begin)) != std::string::npos; begin = end + 1)
    run.metrics.push_back(
        parse_object(metrics, ++line, std::string_view(lines).substr(begin, end - begin)));
  return run;
}

}  // namespace lockstep::apps

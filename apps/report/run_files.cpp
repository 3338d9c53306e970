#include "apps/report/run_files.h"

#include "apps/report/run_directory.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

namespace lockstep::apps {
namespace {

using nlohmann::json;

constexpr int64_t kLargestFile = int64_t{1} << 30;
constexpr int kDeepest = 16;

json parse_object(const std::string& path, int64_t line, std::string_view text) {
  bool deep = false;  // copying and writing JSON recurses: a deep one would end the stack
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    deep = deep || depth > kDeepest;
    return !deep;
  };
  const json object = json::parse(text, shallow, /*allow_exceptions=*/false);
  if (deep || !object.is_object())
    throw SystemError(Fault::file, fmt::format("{} line {}: expected a JSON object, got '{}'",
                                               printable(path), line, printable(text, 60)));
  return object;
}

json read_object(const std::string& path) {
  return parse_object(path, 1, read_file(path, kLargestFile));
}

// The last part of the path; of "." and the like that of what they stand for.
std::string name_of(const std::string& directory) {
  std::filesystem::path path(directory);
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "." || path.filename() == ".." || path.filename().empty()) {
    std::error_code unknown;  // then there is nothing to read either
    path = std::filesystem::canonical(path, unknown);
  }
  const std::string name = path.filename().string();
  return name.empty() ? "run" : printable(name, 40);
}

}  // namespace

double number_in(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

RunFiles read_run(const std::string& directory) {
  RunFiles files{
      .directory = directory, .name = name_of(directory), .run = {}, .summary = {}, .loss = {}};
  files.run = read_object(directory + "/" + kRunFile);
  files.summary = read_object(directory + "/" + kSummaryFile);
  for_each_step(directory,
                [&](const json& step) { files.loss.push_back(number_in(step, "loss")); });
  return files;
}

std::vector<RunFiles> read_runs(const std::vector<std::string>& directories) {
  std::vector<RunFiles> runs;
  std::set<std::string> names;
  for (const std::string& directory : directories) {
    RunFiles& run = runs.emplace_back(read_run(directory));
    const std::string name = run.name;
    for (int i = 2; !names.insert(run.name).second; ++i) run.name = fmt::format("{} {}", name, i);
  }
  return runs;
}

void for_each_step(const std::string& directory, const std::function<void(const json&)>& step) {
  const std::string metrics = directory + "/" + kMetricsFile;
  const std::string text = read_file(metrics, kLargestFile);
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    step(parse_object(metrics, ++line, std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
}

}  // namespace lockstep::apps

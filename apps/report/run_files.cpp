#include "apps/report/run_files.h"

#include "apps/report/run_directory.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

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

}  // namespace

double number_in(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

RunFiles read_run(const std::string& directory) {
  RunFiles files;
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  files.name = printable(slash == std::string::npos ? path : path.substr(slash + 1), 40);
  files.run = read_object(path + "/" + kRunFile);
  files.summary = read_object(path + "/" + kSummaryFile);

  const std::string metrics = path + "/" + kMetricsFile;
  const std::string text = read_file(metrics, kLargestFile);
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const json step =
        parse_object(metrics, ++line, std::string_view(text).substr(begin, end - begin));
    files.loss.push_back(number_in(step, "loss"));
    begin = end + 1;
  }
  return files;
}

}  // namespace lockstep::apps

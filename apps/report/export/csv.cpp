#include "apps/report/export/csv.h"

#include "apps/report/export/scalars.h"
#include "core/file.h"

#include <map>

namespace lockstep::apps {
namespace {

using nlohmann::json;

constexpr size_t kChunk = size_t{1} << 20;

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string cell(const json& value) { return value.is_null() ? "nan" : value.dump(); }

// `step` first, then the fields in the order in which they come up.
std::vector<std::string> columns_of(const std::vector<RunFiles>& runs) {
  std::vector<std::string> columns{"step"};
  std::map<std::string, bool> known{{"step", true}};
  for (const RunFiles& run : runs)
    for_each_step(run.directory, [&](const json& step) {
      for (const auto& [name, value] : scalars_of(step, '.'))
        if (known.emplace(name, true).second) columns.push_back(name);
    });
  return columns;
}

}  // namespace

void write_csv(const std::string& path, const std::vector<RunFiles>& runs) {
  const std::vector<std::string> columns = columns_of(runs);
  AtomicFile file(path);
  std::string text = "run";
  for (const std::string& column : columns) text.append(",").append(quoted(column));
  text += "\n";
  for (const RunFiles& run : runs)
    for_each_step(run.directory, [&](const json& step) {
      std::map<std::string, json> values;
      for (auto& [name, value] : scalars_of(step, '.')) values[name] = std::move(value);
      text += quoted(run.name);
      for (const std::string& column : columns) {
        const auto found = values.find(column);
        text += ",";
        if (found != values.end()) text += cell(found->second);
      }
      text += "\n";
      if (text.size() >= kChunk) {
        file.write(text);
        text.clear();
      }
    });
  file.write(text);
  file.commit();
}

}  // namespace lockstep::apps

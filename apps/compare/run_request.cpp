#include "apps/compare/run_request.h"

#include "apps/cli/parse.h"
#include "apps/commands.h"
#include "core/check.h"
#include "core/file.h"
#include "core/kernels/cpu/isa.h"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>

namespace lockstep::apps {
namespace {

// To be raised when apps/ trains differently; what the library does differently is found by itself.
constexpr int kResults = 1;
constexpr double kBegin = 0.2, kFlops = 2e10;  // seconds to begin; a second of a core
constexpr int64_t kLargestFile = int64_t{1} << 40;

std::unique_ptr<Command> training_command(const std::string& app) {
  if (app == "transformer") return train_transformer_command();
  if (app == "recommender") return train_recommender_command();
  if (app == "vision") return train_vision_command();
  throw UsageError(fmt::format(
      "[compare.run] an app; expected transformer, recommender or vision, got '{}'", app));
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// A value that names a file, alone or as in criteo:FILE, by its content.
std::string by_content(const std::string& value) {
  if (is_file(value)) return "file " + hash_of_file(value);
  const size_t colon = value.find(':');
  if (colon == std::string::npos || !is_file(value.substr(colon + 1))) return value;
  return value.substr(0, colon) + ":file " + hash_of_file(value.substr(colon + 1));
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./,:=+%@").find(c) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'')
      text.append("'\\''");
    else
      text.push_back(c);
  }
  text.push_back('\'');
  return text;
}

// As the command knows it, defaults included.
nlohmann::ordered_json values_of(const RunRequest& request) {
  const auto command = training_command(request.app);
  std::vector<std::string> arguments;
  for (const auto& [name, value] : request.options) {
    check(name.rfind("--", 0) == 0 && name != "--out" && name != "--config",
          "[compare.run] an option; expected a name other than --out and --config, got '{}'", name);
    arguments.insert(arguments.end(), {name, value});
  }
  command->options().parse(arguments);
  return command->options().values();
}

double number_of(const nlohmann::ordered_json& values, const char* key, double otherwise) {
  const auto found = values.find(key);
  return found != values.end() && found->is_number() ? std::max(found->get<double>(), 1.0)
                                                     : otherwise;
}

}  // namespace

std::vector<std::string> RunRequest::words() const {
  std::vector<std::string> words{"train", app};
  for (const auto& [name, value] : options) words.insert(words.end(), {name, value});
  return words;
}

std::string RunRequest::command() const {
  std::string text = "lockstep";
  for (const std::string& word : words()) text.append(" ").append(quoted(word));
  return text;
}

std::string canonical(const RunRequest& request) {
  nlohmann::ordered_json values = values_of(request);
  values.erase("out");
  for (auto& value : values)
    if (value.is_string()) value = by_content(value.get<std::string>());
  values["app"] = request.app;
  // Times of a run that had the machine to itself are not those of one that had not.
  values["alone"] = request.company == Company::alone;
  return values.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

double weight_of(const RunRequest& request) {
  const nlohmann::ordered_json values = values_of(request);
  const double global = values.value("global_batch", 0) > 0
                            ? number_of(values, "global_batch", 1)
                            : number_of(values, "batch", 1) * number_of(values, "ranks", 1) *
                                  number_of(values, "accumulate", 1);
  const double width = number_of(values, "width", 0), layers = number_of(values, "layers", 1);
  const double flops = width > 0 ? 72 * layers * width * width * number_of(values, "context", 1)
                                 : 1e6;  // of a sample; a recommender
  return kBegin + number_of(values, "steps", 1) * global * flops / kFlops;
}

std::string hash_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_of_file(const std::string& path) {
  static std::mutex mutex;  // files are asked for again and again, and do not change meanwhile
  static std::map<std::string, std::string> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(path); found != known.end()) return found->second;
  return known[path] = hash_of(read_file(path, kLargestFile));
}

std::string fingerprint() {
  Dl_info info{};  // of the shared library, or of a program that has all of it in itself
  const auto* symbol = reinterpret_cast<const void*>(&cpu::isa);
  check(::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr,
        "[compare.run] the library's file is not known");
  return fmt::format("{} {} {}", hash_of_file(info.dli_fname), kResults, cpu::name_of(cpu::isa()));
}

std::string program_fingerprint() { return fingerprint() + " " + hash_of_file("/proc/self/exe"); }

}  // namespace lockstep::apps

#pragma once
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

/// What a claim wants to have trained: `lockstep train APP --NAME VALUE …`.
namespace lockstep::apps {

/// Whether others may run at the same time. Runs whose real time is a result are alone.
enum class Company { others, alone };

struct RunRequest {
  std::string app;                             ///< transformer, recommender, vision
  std::map<std::string, std::string> options;  ///< "--steps" → "300"; no flags, no --out
  Company company = Company::others;
  double timeout_s = 1800;

  /// The same with one more option, or another value of it.
  template <class Value>
  RunRequest with(const std::string& name, const Value& value) const {
    RunRequest copy = *this;
    copy.options[name] = fmt::format("{}", value);
    return copy;
  }
  /// {"train", APP, "--a", "1", …} in the order of names.
  std::vector<std::string> words() const;
  /// "lockstep train …", quoted for a shell.
  std::string command() const;
};

/// The whole configuration as one line of JSON, defaults included, so that two ways of asking for
/// the same are equal; files by their content. UsageError for what the command would refuse.
std::string canonical(const RunRequest& request);

/// Roughly its seconds on one core, to tell how much is left.
double weight_of(const RunRequest& request);

/// 32 hexadecimal digits.
std::string hash_of(std::string_view text);
std::string hash_of_file(const std::string& path);

/// What results depend on beside a configuration: the library's code, this program's version of
/// what is trained (kResults), the instruction set.
std::string fingerprint();
/// And the whole program's code: for experiments that are part of it.
std::string program_fingerprint();

}  // namespace lockstep::apps

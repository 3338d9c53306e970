#include "apps/bench/against/sides.h"

#include "apps/cli/parse.h"
#include "core/check.h"
#include "core/file.h"
#include "source_dir.h"

#include <fmt/ranges.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

// As a shell would find it.
std::string found_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':'))
    if (const std::string file = folder + "/" + program;
        !folder.empty() && ::access(file.c_str(), X_OK) == 0)
      return file;
  throw SystemError(Fault::file,
                    fmt::format("--against {}: expected a Python; there is no such program in PATH",
                                printable(program)));
}

// This program, even when the file has been built anew since, and the one built beside it.
std::string path_of(Contest::Program program) {
  constexpr char kSelf[] = "/proc/self/exe";
  if (program == Contest::Program::lockstep) return kSelf;
  return (fs::read_symlink(kSelf).parent_path() / "lockstep_mallocs").string();
}

// No GPU, no caches left in the source tree, Gloo on the loopback.
ChildOptions peer_options(double timeout_s) {
  return {.timeout_s = timeout_s,
          .environment = {{"CUDA_VISIBLE_DEVICES", ""},
                          {"PYTHONDONTWRITEBYTECODE", "1"},
                          {"GLOO_SOCKET_IFNAME", "lo"}}};
}

void check_time(const std::string& what, const ChildOutcome& outcome) {
  if (outcome.end == ChildOutcome::End::interrupted) throw Interrupted{};
  if (outcome.end == ChildOutcome::End::timed_out)
    throw SystemError(Fault::file, fmt::format("{}: {}; --timeout allows more", printable(what),
                                               outcome.failure()));
}

}  // namespace

Sides::Sides(const Options& options) : options_(options) {
  if (options_.peers.empty()) options_.peers = std::string(kSourceDir) + "/benchmarks/peers";
  if (!fs::exists(fs::path(options_.peers) / "version.py"))
    throw SystemError(
        Fault::file,
        fmt::format("--against: expected the peers' scripts in {}; they are in benchmarks/peers of "
                    "the source tree, and --peers DIR says where that is",
                    printable(options_.peers)));
  options_.python = found_in_path(options_.python);
  const ChildOutcome outcome = run_child({options_.python, options_.peers + "/version.py"},
                                         peer_options(options_.timeout_s));
  check_time("the peer version.py", outcome);
  torch_ = Results(outcome).word("torch");
  check(outcome.ok() && !torch_.empty(),
        "--against {}: expected a Python that has torch, got {}; {} -m pip install torch",
        printable(options_.python), outcome.failure(), printable(options_.python));
}

bool Sides::has(Contest::Program program) { return ::access(path_of(program).c_str(), X_OK) == 0; }

Results Sides::ours(const std::vector<std::string>& arguments, Contest::Program program) const {
  std::vector<std::string> words{path_of(program)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(fmt::format("lockstep {}", fmt::join(arguments, " ")), words,
             {.timeout_s = options_.timeout_s});
}

Results Sides::peer(const std::vector<std::string>& script) const {
  std::vector<std::string> words{options_.python, options_.peers + "/" + script.at(0)};
  words.insert(words.end(), script.begin() + 1, script.end());
  return run(fmt::format("the peer {}", fmt::join(script, " ")), words,
             peer_options(options_.timeout_s));
}

Results Sides::run(const std::string& what, const std::vector<std::string>& words,
                   const ChildOptions& options) const {
  const ChildOutcome outcome = run_child(words, options);
  check_time(what, outcome);
  if (!outcome.ok())
    throw SystemError(Fault::file, fmt::format("{}: expected results, got {}", printable(what),
                                               outcome.failure()));
  return Results(outcome);
}

}  // namespace lockstep::apps

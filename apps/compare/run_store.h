#pragma once
#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/compare/run_request.h"
#include "apps/compare/run_result.h"

namespace lockstep::apps {

/// Beside a run's own files: written last, so that with it the run is complete, without it nothing.
inline constexpr const char* kResultFile = "result.json";
/// Of an experiment: what it answered.
inline constexpr const char* kAnswerFile = "answer.json";

/// What a claim measures in this process: kernels, codes, threads that sleep.
struct Experiment {
  std::string name;
  nlohmann::ordered_json parameters;
  std::function<nlohmann::ordered_json(const nlohmann::ordered_json& parameters)> measure;
  Company company = Company::others;
  double seconds = 1;  ///< that it takes, roughly
};

/// What claims ask for, done once each and kept under DIR/runs/KEY; another call with the same
/// directory finds it there. The key is a hash of the configuration and of what else results depend
/// on (fingerprint()).
///
///     store.ask(request); store.ask(experiment);   // as often as one likes
///     store.work({.jobs = 2});                     // all that is missing
///     store.result(request).figure("val_loss");
class RunStore {
 public:
  struct Options {
    int64_t jobs = 1;  ///< side by side
    enum class Talk { progress, quiet } talk = Talk::progress;
    std::string program = "/proc/self/exe";
  };
  /// What became of work().
  struct Done {
    int64_t kept = 0;  ///< were there
    int64_t made = 0;
    bool interrupted = false;
    /// Neither finished nor diverged: "lockstep train …: exit code 6: …". Claims that rest on them
    /// have no result; the next store tries again.
    std::map<std::string, std::string> failed;  // by key
  };

  /// Makes the directory; SystemError(file) when another comparison works in it.
  explicit RunStore(std::string directory);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  std::string ask(const RunRequest& request);  ///< its key; UsageError for a bad one
  std::string ask(const Experiment& experiment);
  /// Runs train as processes of this program, killed when their time is over or when this one is
  /// interrupted; others are let be. First what may run side by side, then the rest alone.
  Done work(const Options& options);

  std::string key_of(const RunRequest& request) const;
  std::string key_of(const Experiment& experiment) const;
  /// UsageError where it was not asked for or has no result.
  const RunResult& result(const RunRequest& request);
  const nlohmann::json& answer(const Experiment& experiment);
  std::string folder(const std::string& key) const { return directory_ + "/runs/" + key; }

 private:
  struct Task {
    std::string key, config, command;
    Company company;
    double weight;
    std::function<std::string(const Options&)> run;  // "": done; else why it failed
  };
  bool complete(const Task& task) const;
  void add(Task task);
  std::string train(const RunRequest& request, const std::string& key, const std::string& config,
                    const Options& options) const;
  std::string measure(const Experiment& experiment, const std::string& key,
                      const std::string& config) const;

  std::string directory_;
  int lock_ = -1;
  std::vector<Task> tasks_;                    // in the order of asking, each key once
  std::map<std::string, std::string> failed_;  // why, by key; not tried again by this store
  std::map<std::string, RunResult> results_;
  std::map<std::string, nlohmann::json> answers_;
};

}  // namespace lockstep::apps

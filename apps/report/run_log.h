#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/report/progress.h"
#include "apps/report/run_directory.h"
#include "distributed/comm/communicator.h"

namespace lockstep::apps {

/// What a step goes through.
struct Throughput {
  int64_t samples_per_step = 0;              ///< of all ranks
  std::optional<int64_t> tokens_per_sample;  ///< nothing: there are no tokens
};

/// Rank 0's account of a run: writes the metrics, shows the progress, ends in the summary.
class RunLog {
 public:
  RunLog(RunDirectory& directory, int64_t steps, const Throughput& throughput,
         Progress::Style style);

  void step(const StepRecord& record);
  void note(const std::string& text) { progress_.note(text); }
  void warn(const std::string& text) { progress_.warn("warning: " + text); }

  struct Ending {
    std::string status;  ///< "finished", "interrupted", "diverged"
    distributed::CommStats comm;
    nlohmann::ordered_json more = nlohmann::ordered_json::object();  ///< fields of the app itself
  };
  /// Writes summary.json and returns it; see README.md for the fields.
  nlohmann::ordered_json finish(const Ending& ending);

 private:
  double samples_per_s() const;  // global samples over the median step after the third

  RunDirectory& directory_;
  Progress progress_;
  Throughput throughput_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<float> step_times_;
  int64_t steps_ = 0, skipped_ = 0;
  double recent_time_ = 0;  // running mean, for the progress line
  std::optional<double> loss_, val_loss_, val_accuracy_, best_val_loss_;
};

}  // namespace lockstep::apps

#pragma once
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

#include "apps/report/run_log.h"
#include "apps/training/profile_report.h"
#include "apps/training/run_options.h"
#include "distributed/comm/communicator.h"

namespace lockstep::apps {

/// The directory and the log of a run; rank 0 has them, the others do not.
struct Books {
  /// Writes run.json. `config` are all options' values.
  Books(const RunOptions& options, const std::string& command, const nlohmann::ordered_json& config,
        int64_t parameters, const Throughput& throughput);
  RunDirectory directory;
  RunLog log;
};

/// One a rank; none unless --profile was given.
Profiles make_profiles(const RunOptions& options);
/// Writes the trace of profiled steps into the directory; what a person is shown.
std::string report_profiles(const Profiles& profiles, const std::string& directory);

/// From the beginning of a step: what it took.
class StepClock {
 public:
  explicit StepClock(const distributed::Communicator& comm) : comm_(comm), before_(comm.stats()) {}
  StepRecord record(int64_t step) const;

 private:
  using Clock = std::chrono::steady_clock;
  const distributed::Communicator& comm_;
  Clock::time_point begin_ = Clock::now();
  distributed::CommStats before_;
};

}  // namespace lockstep::apps

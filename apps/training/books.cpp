#include "apps/training/books.h"

#include "apps/report/machine.h"
#include "core/file.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace lockstep::apps {

Books::Books(const RunOptions& o, const std::string& command, const nlohmann::ordered_json& config,
             int64_t parameters, const Throughput& throughput)
    : directory(o.out,
                o.overwrite ? RunDirectory::Existing::overwrite : RunDirectory::Existing::refuse),
      log(directory, o.steps, throughput, o.quiet ? Progress::Style::quiet : Progress::fitting()) {
  directory.write_json(
      kRunFile, {{"command", command},
                 {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                 {"config", config},
                 {"parameters", parameters},
                 {"versions", versions()},
                 {"machine", machine()}});
}

Profiles make_profiles(const RunOptions& o) {
  Profiles profiles;
  for (int64_t rank = 0; o.profile && rank < o.ranks; ++rank)
    profiles.push_back(std::make_unique<Profile>(
        Profile::Options{.warm_up = std::min(Profile::Options{}.warm_up, o.steps - 1)}));
  return profiles;
}

std::string report_profiles(const Profiles& profiles, const std::string& directory) {
  const std::string trace = directory + "/" + kTraceFile;
  write_profile_trace(trace, profiles);
  return profile_text(profiles) +
         fmt::format("traced steps: {}, for ui.perfetto.dev or chrome://tracing\n",
                     printable(trace));
}

StepRecord StepClock::record(int64_t step) const {
  const distributed::CommStats after = comm_.stats();
  return {.step = step,
          .time_s = std::chrono::duration<double>(Clock::now() - begin_).count(),
          .wire_bytes = std::llround(after.total().wire_bytes - before_.total().wire_bytes),
          .comm_s = after.comm_s - before_.comm_s,
          .exposed_comm_s = after.exposed_s - before_.exposed_s};
}

}  // namespace lockstep::apps

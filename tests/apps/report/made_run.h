#pragma once
#include <functional>
#include <string>

#include "apps/report/run_directory.h"

namespace lockstep::test {

/// Writes the directory of a run of `steps` steps, as training would; `change` is called with each
/// record before it is written.
inline void make_run(
    const std::string& path, int64_t steps,
    const std::function<void(apps::StepRecord&)>& change = [](apps::StepRecord&) {},
    const std::string& word = "allreduce") {
  using namespace apps;
  RunDirectory run(path, RunDirectory::Existing::overwrite);
  run.write_json(kRunFile, {{"command", "train transformer"},
                            {"started", "2026-01-02T03:04:05Z"},
                            {"config", {{"ranks", 2}, {"sync", word}, {"precision", "fp32"}}},
                            {"versions", {{"lockstep", "0.1.0"}, {"build", "Release"}}},
                            {"machine", {{"processor", word}, {"cores", 2}, {"isa", "avx2"}}}});
  run.begin_metrics();
  for (int64_t i = 1; i <= steps; ++i) {
    StepRecord record{.step = i,
                      .time_s = 0.5,
                      .loss = 3.0 / static_cast<double>(i),
                      .lr = 1e-3,
                      .samples = 8,
                      .wire_bytes = 1000};
    if (i % 5 == 0) record.val_loss = 3.5 / static_cast<double>(i);
    change(record);
    run.write_step(record);
  }
  run.write_json(kSummaryFile, {{"val_loss", 0.7},
                                {"tokens_per_s", 1234567.25},
                                {"sync", {{"histograms", {{"staleness", {5, 4, 3}}}}}},
                                {"wall_s", 1.5}});
  run.keep();
}

}  // namespace lockstep::test

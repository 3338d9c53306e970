#include "apps/training/cluster_report.h"

#include "core/file.h"
#include "distributed/comm/virtual_cluster/picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

using distributed::virtual_cluster::Run;
using distributed::virtual_cluster::StepTimes;

nlohmann::ordered_json json_of(const StepTimes& t) {
  return {{"compute_s", t.compute},
          {"wait_s", t.wait},
          {"exposed_comm_s", t.exposed},
          {"hidden_comm_s", t.hidden},
          {"utilisation", t.utilisation()}};
}

}  // namespace

void add_times(StepRecord& record, double now, const StepTimes& times) {
  record.comm_s = times.exposed + times.hidden;
  record.exposed_comm_s = times.exposed;
  record.more["virtual_s"] = now;
  record.more["compute_s"] = times.compute;
  record.more["wait_s"] = times.wait;
  record.more["utilisation"] = times.utilisation();
}

double virtual_seconds(const Run& run) {
  double longest = 0;
  for (int rank = 0; rank < run.timeline.ranks(); ++rank)
    longest = std::max(longest, run.timeline.total(rank).seconds());
  return longest;
}

nlohmann::ordered_json cluster_json(const Run& run, double begin) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (int rank = 0; rank < run.timeline.ranks(); ++rank) {
    const StepTimes& total = run.timeline.total(rank);
    nlohmann::ordered_json line{{"rank", rank}, {"steps", run.timeline.steps(rank)}};
    line.update(json_of(total));
    ranks.push_back(std::move(line));
  }
  const StepTimes& own = run.timeline.total(0);
  return {{"comm_s", own.exposed + own.hidden},
          {"exposed_comm_s", own.exposed},
          {"virtual_s", begin + virtual_seconds(run)},
          {"ranks", std::move(ranks)}};
}

std::string report_cluster(const Run& run, const std::string& directory) {
  const std::string timeline = directory + "/" + kTimelineFile,
                    ranks = directory + "/" + kRanksFile;
  run.timeline.write_trace(timeline);
  AtomicFile file(ranks);
  size_t most = 0;
  for (const auto& steps : run.steps) most = std::max(most, steps.size());
  for (size_t step = 0; step < most; ++step)
    for (size_t rank = 0; rank < run.steps.size(); ++rank) {
      if (step >= run.steps[rank].size()) continue;
      nlohmann::ordered_json line{{"step", step + 1}, {"rank", rank}};
      line.update(json_of(run.steps[rank][step]));
      file.write(line.dump() + "\n");
    }
  file.commit();
  return distributed::virtual_cluster::picture(run.timeline) +
         fmt::format("timeline of the first steps: {}, for ui.perfetto.dev or chrome://tracing\n",
                     printable(timeline));
}

}  // namespace lockstep::apps

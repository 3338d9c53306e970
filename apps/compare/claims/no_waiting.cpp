// A3a, B2a: "asynchrony: no waiting, hence higher utilisation and speed". Modelled: what a push
// costs is what the cluster's description says.
#include "apps/compare/claims/no_waiting.h"

#include "apps/compare/claims/models.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr int64_t kRanks = 8, kSteps = 60;
constexpr double kFaster = 1.05;

struct Described {
  const char *name, *cluster;
};
// 137 kB of gradients: at 10 Gbit/s 0.1 ms a message, at 300 Mbit/s 3.7 ms.
constexpr Described kClusters[] = {
    {"even ranks, fast links", "compute=20ms,bandwidth=10Gbit"},
    {"times spread by 30 %, fast links", "compute=20ms,bandwidth=10Gbit,jitter=lognormal:0.3"},
    {"one rank twice as slow, fast links", "compute=20ms,bandwidth=10Gbit,slow=7:2"},
    {"even ranks, slow links", "compute=20ms,bandwidth=300Mbit"},
    {"one rank twice as slow, slow links", "compute=20ms,bandwidth=300Mbit,slow=7:2"},
    {"even ranks, slow links, a service with 8 of them",
     "compute=20ms,bandwidth=300Mbit,server-bandwidth=2400Mbit"}};

RunRequest run_of(const Described& cluster, const char* sync) {
  return tiny_gpt(kRanks, kSteps)
      .with("--backend", "virtual")
      .with("--cluster", cluster.cluster)
      .with("--sync", sync);
}

Needs ask(const Setting&) {
  Needs needs;
  for (const Described& cluster : kClusters)
    for (const char* sync : {"allreduce", "async"}) needs.runs.push_back(run_of(cluster, sync));
  return needs;
}

struct Pace {
  double gradients_per_s = 0, utilisation = 0;
};
// Each rank by its own clock: one that ends early would have gone on.
Pace pace_of(const RunResult& run) {
  Pace pace;
  for (const auto& rank : run.summary["ranks"]) {
    const double seconds = number_at(rank, "compute_s") + number_at(rank, "wait_s");
    pace.gradients_per_s += number_at(rank, "steps") / seconds;
    pace.utilisation += number_at(rank, "compute_s") / seconds / kRanks;
  }
  return pace;
}

Outcome judge(const Setting&, Results& results) {
  Outcome outcome;
  std::vector<NoWaiting> all;
  Chart chart{.title = "Share of time that ranks compute",
              .kind = ChartKind::bar,
              .y = {"utilisation", "%"},
              .series = {{.name = "all-reduce"}, {.name = "asynchronous"}}};
  for (const Described& cluster : kClusters) {
    const Pace sync = pace_of(results.result(run_of(cluster, "allreduce"))),
               async = pace_of(results.result(run_of(cluster, "async")));
    all.push_back({cluster.name, async.gradients_per_s / sync.gradients_per_s, async.utilisation,
                   sync.utilisation});
    outcome.figures.push_back({fmt::format("gradients a second, async over sync, {}", cluster.name),
                               "", all.back().speed});
    outcome.figures.push_back(
        {fmt::format("utilisation under async, {}", cluster.name), "%", 100 * async.utilisation});
    outcome.figures.push_back({fmt::format("utilisation under all-reduce, {}", cluster.name), "%",
                               100 * sync.utilisation});
    chart.categories.emplace_back(cluster.name);
    chart.series[0].y.push_back(100 * sync.utilisation);
    chart.series[1].y.push_back(100 * async.utilisation);
  }
  outcome.verdict.direction = judge_no_waiting(all);
  outcome.charts = {chart};
  outcome.takeaway =
      "Asynchrony gives back what ranks wait for each other, and nothing else. Every push goes to "
      "a "
      "service and back, without a backward pass to hide behind; where that service has one link, "
      "as many cards as it has to serve divide it, and an all-reduce is faster.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "A3a",
     .source = "documents A (asynchrony) and B (B2a)",
     .statement = "Asynchronous training does not wait: higher utilisation, higher speed.",
     .done = "8 ranks on modelled clusters, even and uneven, with fast and slow links, under "
             "all-reduce and asynchronously: the share of time in which ranks compute, and "
             "gradients a second.",
     .rule = "Modelled. Reproduced where on all clusters asynchronous ranks compute a larger share "
             "of the time and make at least 1.05 times the gradients a second, in part where on "
             "some, else not.",
     .ask = ask,
     .judge = judge}};

}  // namespace

Judgement judge_no_waiting(const std::vector<NoWaiting>& clusters) {
  int64_t faster = 0;
  std::string reason;
  for (const NoWaiting& c : clusters) {
    faster += c.speed >= kFaster && c.utilisation > c.utilisation_sync ? 1 : 0;
    reason += fmt::format("{}{:.2f} times as fast with {}", reason.empty() ? "" : ", ", c.speed,
                          c.cluster);
  }
  return {faster == static_cast<int64_t>(clusters.size()) ? Finding::reproduced
          : faster > 0                                    ? Finding::in_part
                                                          : Finding::not_reproduced,
          Provenance::modelled, reason};
}

}  // namespace lockstep::apps

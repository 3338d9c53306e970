#include "distributed/comm/virtual_cluster/durations.h"

#include <cmath>

#include "core/check.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

// Places in a rank's random sequence.
constexpr uint64_t kOffset = 0;
constexpr uint64_t law_of(int64_t micro) { return 1 + 2 * static_cast<uint64_t>(micro); }
constexpr uint64_t pause_of(int64_t micro) { return 2 + 2 * static_cast<uint64_t>(micro); }

}  // namespace

Durations::Durations(const Cluster& cluster, int ranks, uint64_t seed) : jitter_(cluster.jitter) {
  check(cluster.compute.has_value(),
        "[distributed.cluster] compute; expected a time, given or measured, got measure");
  check(ranks >= 1, "[distributed.cluster] expected at least 1 rank, got {}", ranks);
  cluster.expect_ranks(ranks);
  compute_ = *cluster.compute;
  ranks_.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const Random random(seed, RandomStream::modelled_time, static_cast<uint32_t>(rank));
    const int64_t period = jitter_.periodic.period;
    const uint64_t offset = period == 0 ? 0 : random.below(static_cast<uint64_t>(period), kOffset);
    ranks_.push_back({random, cluster.factor(rank), static_cast<int64_t>(offset)});
  }
}

double Durations::random_factor(const Rank& rank, int64_t micro) const {
  const double spread = jitter_.spread, alpha = jitter_.alpha;
  switch (jitter_.law) {
    case Jitter::Law::none:
      break;
    case Jitter::Law::lognormal:
      return std::exp(spread * rank.random.normal(law_of(micro)) - 0.5 * spread * spread);
    case Jitter::Law::exponential:
      return 1 - spread - spread * std::log1p(-rank.random.uniform53(law_of(micro)));
    case Jitter::Law::pareto:
      return 1 - spread +
             spread * (alpha - 1) / alpha *
                 std::pow(1 - rank.random.uniform53(law_of(micro)), -1 / alpha);
  }
  return 1;
}

double Durations::seconds(int rank, int64_t micro, Pass pass) const {
  check(rank >= 0 && rank < static_cast<int>(ranks_.size()) && micro >= 0,
        "[distributed.cluster] rank {} of {}, micro-batch {}", rank, ranks_.size(), micro);
  const Rank& r = ranks_[static_cast<size_t>(rank)];
  double whole = compute_ * r.factor * random_factor(r, micro);
  const Jitter::Periodic& periodic = jitter_.periodic;
  // Each term is below the period, so that no sum overflows.
  if (periodic.period > 0 &&
      (micro % periodic.period + r.offset) % periodic.period < periodic.length)
    whole *= periodic.factor;
  if (pass == Pass::backward) return whole * 2 / 3;
  const Jitter::Pause& pause = jitter_.pause;
  if (pause.probability > 0 && r.random.uniform53(pause_of(micro)) < pause.probability)
    return whole / 3 + pause.seconds;
  return whole / 3;
}

}  // namespace lockstep::distributed::virtual_cluster

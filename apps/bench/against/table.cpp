#include "apps/bench/against/table.h"

#include "apps/bench/measure.h"

namespace lockstep::apps {
namespace {

std::optional<double> middle(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median(values));
}

}  // namespace

void add_peaks(std::vector<LimitLine>& limits, const Results& peaks) {
  const struct {
    const char *line, *key;
    LimitLine shown;
  } kinds[] = {
      {"peaks loop fp32",
       "gflops",
       {"fp32-loop", "fp32, multiplications and additions in registers", "GFLOP/s", Limit::fp32}},
      {"peaks matmul fp32",
       "gflops",
       {"fp32-matmul", "fp32, our fastest matmul", "GFLOP/s", Limit::fp32}},
      {"peaks loop bf16",
       "gflops",
       {"bf16-loop", "bf16, dot products of pairs in registers", "GFLOP/s", Limit::bf16}},
      {"peaks matmul bf16",
       "gflops",
       {"bf16-matmul", "bf16, our fastest matmul", "GFLOP/s", Limit::bf16}},
      {"peaks triad",
       "gb_per_s",
       {"triad", "memory, triad: 2 arrays of 200 MB read, 1 written", "GB/s", Limit::memory}},
      {"peaks in place",
       "gb_per_s",
       {"in-place", "memory, 4 arrays of 200 MB read, 3 of them written", "GB/s", Limit::memory}}};
  for (const auto& [line, key, shown] : kinds) {
    const auto value = peaks.largest(line, key);
    if (!value) continue;
    const auto known = std::find_if(limits.begin(), limits.end(),
                                    [&](const LimitLine& l) { return l.name == shown.name; });
    LimitLine& limit = known == limits.end() ? limits.emplace_back(shown) : *known;
    limit.value = std::max(limit.value, *value);
  }
}

std::optional<double> value_of(const std::vector<LimitLine>& limits, Limit limit) {
  std::optional<double> most;
  const auto counts = [&](Limit other) {
    return other == limit || (limit == Limit::bf16 && other == Limit::fp32);
  };
  for (const LimitLine& line : limits)
    if (counts(line.limit) && line.value > most) most = line.value;
  return most;
}

std::optional<double> Row::our_median() const { return middle(ours); }
std::optional<double> Row::peer_median() const { return middle(peer); }

std::optional<double> Row::ratio() const {
  const auto mine = our_median(), theirs = peer_median();
  if (!mine || !theirs) return std::nullopt;
  const bool speed = plan.ratio == RowPlan::Ratio::speed;
  const double above = speed ? *theirs : *mine, below = speed ? *mine : *theirs;
  return below > 0 ? std::optional(above / below) : std::nullopt;
}

std::optional<double> Row::share(const std::vector<LimitLine>& limits) const {
  if (!plan.share || shared.empty()) return std::nullopt;
  const auto most = value_of(limits, plan.share->limit);
  return most && *most > 0 ? std::optional(median(shared) / *most) : std::nullopt;
}

std::optional<bool> Row::met(const std::vector<LimitLine>& limits) const {
  if (!plan.mark) return std::nullopt;
  const auto value = plan.mark->of == Mark::Of::ratio   ? ratio()
                     : plan.mark->of == Mark::Of::share ? share(limits)
                                                        : our_median();
  if (!value) return std::nullopt;
  if (plan.loss && !our_loss.empty() && !peer_loss.empty() &&
      median(our_loss) > median(peer_loss) + plan.loss->slack)
    return false;
  return plan.mark->bound == Mark::Bound::at_least ? *value >= plan.mark->value
                                                   : *value <= plan.mark->value;
}

}  // namespace lockstep::apps

#include "apps/compare/claim.h"

#include "apps/compare/verdict_rules.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr int64_t kTuningSeeds = 2;

std::vector<Claim>& registered() {
  static std::vector<Claim> claims;
  return claims;
}

std::vector<int64_t> seeds_from(int64_t first, int64_t count) {
  std::vector<int64_t> seeds;
  for (int64_t i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

}  // namespace

std::string name_of(Extent extent) {
  return extent == Extent::quick ? "quick" : extent == Extent::full ? "full" : "default";
}

Setting Claim::setting(Extent extent, int64_t seeds, const std::string& text) const {
  const auto enough = [this](const Size& size) {
    return Size{std::max(size.steps, needed.steps), std::max(size.seeds, needed.seeds)};
  };
  const Size usual = enough(standard);
  const Size size = extent == Extent::quick      ? quick
                    : extent == Extent::standard ? usual
                                                 : Size{std::max(full.steps, usual.steps),
                                                        std::max(full.seeds, usual.seeds)};
  return {.extent = extent,
          .steps = size.steps,
          .seeds = seeds_from(Setting::kFirstSeed, seeds > 0 ? seeds : size.seeds),
          .text = text,
          .tuning_seeds = seeds_from(Setting::kFirstTuningSeed, kTuningSeeds)};
}

bool Claim::decides(const Setting& setting) const {
  return setting.steps >= needed.steps &&
         static_cast<int64_t>(setting.seeds.size()) >= needed.seeds;
}

Outcome Claim::outcome(const Setting& setting, Results& results) const {
  Outcome outcome = judge(setting, results);
  if (decides(setting)) return outcome;
  std::string why = "the rule needs";
  if (needed.steps > 0) why += fmt::format(" {} steps", needed.steps);
  why += fmt::format("{} {} seeds, this had", needed.steps > 0 ? " and" : "", needed.seeds);
  if (needed.steps > 0) why += fmt::format(" {} and", setting.steps);
  why += fmt::format(" {}", setting.seeds.size());
  Verdict& verdict = outcome.verdict;
  verdict.direction = preview(verdict.direction, why);
  if (verdict.size) verdict.size = preview(*verdict.size, why);
  return outcome;
}

const std::vector<Claim>& claims() { return registered(); }

RegisterClaim::RegisterClaim(Claim claim) {
  std::vector<Claim>& all = registered();
  const auto at = std::ranges::lower_bound(all, claim.id, {}, &Claim::id);
  check(at == all.end() || at->id != claim.id, "[compare.claim] {} is registered twice", claim.id);
  all.insert(at, std::move(claim));
}

}  // namespace lockstep::apps

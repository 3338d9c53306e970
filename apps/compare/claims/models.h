#pragma once
#include <cstdint>
#include <string>

#include "apps/compare/claim.h"

/// Models that several claims train, so that they share runs.
namespace lockstep::apps {

/// 34 thousand parameters on generated text, a few milliseconds a step: for claims about bytes and
/// modelled times, to which it does not matter what is learnt.
RunRequest tiny_gpt(int64_t ranks, int64_t steps);

/// 0.12 million parameters on `setting.text`, evaluated on 64k tokens: for claims about learning.
RunRequest small_gpt(const Setting& setting, int64_t seed);

/// What a step adds to a figure of the summary ("wire_bytes", "virtual_s"), without what a run does
/// at its beginning and end: from two runs of different lengths.
struct PerStep {
  explicit PerStep(const RunRequest& request)
      : shorter(request.with("--steps", kShort)), longer(request.with("--steps", kLong)) {}
  void ask(Needs& needs) const;
  double of(Results& results, const std::string& path) const;

  static constexpr int64_t kShort = 4, kLong = 12;
  RunRequest shorter, longer;
};

}  // namespace lockstep::apps

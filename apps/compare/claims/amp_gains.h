#pragma once
#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// Training under amp-bf16 beside fp32.
struct AmpGains {
  double memory = 0;                                         ///< most that is held, over fp32's
  statistics::PairedTest loss;                               ///< over fp32's
  Figure time;                                               ///< of a step, over fp32's
  enum class Bf16 { native, emulated } bf16 = Bf16::native;  ///< what the processor has
};
/// The rule of B4e.
Verdict judge_amp_gains(const AmpGains& gains);

}  // namespace lockstep::apps

#pragma once
#include "apps/compare/claim.h"

namespace lockstep::apps {

/// The rule of A4a: bytes a step with an fp16 wire over those with an fp32 one.
Judgement judge_fp16_bytes(double ratio);
/// That of its size: modelled step time with fp16 over that with fp32 where communication is most
/// of the step.
Judgement judge_fp16_time(double ratio);
/// The rule of A4b: bytes a step of autocast over those of fp32 training.
Judgement judge_autocast_bytes(double ratio);

}  // namespace lockstep::apps

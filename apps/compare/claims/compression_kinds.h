#pragma once
#include <span>
#include <string>
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// What one code does to one model.
struct CompressedArm {
  std::string name;                  ///< "fp8, transformer"
  statistics::BySeed losses, plain;  ///< with it, and of what it is compared with
  Figure ratio;                      ///< bytes of what it is compared with, over its own
  double tolerated = 0;              ///< nats that its loss may be higher
  Interval claimed, near;            ///< of the ratio
};
/// The rule of A2b.
Verdict judge_compression_kinds(std::span<const CompressedArm> arms);

}  // namespace lockstep::apps

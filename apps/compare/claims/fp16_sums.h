#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"
#include "core/dtype.h"

namespace lockstep::apps {

/// Order in which N ranks' numbers are added.
enum class SumOrder {
  ring,  ///< one after the other, each element beginning at another rank
  tree   ///< pairs, pairs of pairs, …
};
/// Sums over ranks of numbers that are of `dtype` and are rounded to it after every addition, as a
/// collective does that adds in the type of the wire. f32: rounded to f16 when they are sent, added
/// in f32.
std::vector<float> sum_in(DType dtype, SumOrder order,
                          const std::vector<std::vector<float>>& ranks);

/// The rule of B4d. `exponent`: of the error that adding adds, in N.
Verdict judge_accumulated_error(const Figure& exponent, const statistics::PairedTest& loss);

/// What A4c rests on.
struct HalfSums {
  bool sum_overflows = false;        ///< at a scale at which no rank's gradient does
  bool others_overflow = false;      ///< sums in fp32, or of gradients divided first, at that scale
  statistics::PairedTest no_master;  ///< loss without fp32 master weights, over with
};
/// The rule of A4c.
Judgement judge_half_sums(const HalfSums& sums);

}  // namespace lockstep::apps

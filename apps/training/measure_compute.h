#pragma once
#include "apps/training/workload.h"

namespace lockstep::apps {

/// Seconds for one micro-batch, forward and backward, on one rank with nothing beside it: the
/// median of a few, for a modelled cluster that was not told. Not the same from run to run, which
/// is why run.json keeps it. For models without tables.
double measure_compute(const Training& training);

}  // namespace lockstep::apps

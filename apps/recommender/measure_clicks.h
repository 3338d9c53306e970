#pragma once
#include "apps/recommender/recommender_options.h"

namespace lockstep::apps {

/// Seconds for one micro-batch, forward and backward, on one rank with nothing beside it: the
/// median of a few, for a modelled cluster that was not told. Not the same from run to run, which
/// is why run.json keeps it.
double measure_clicks(const RecommenderOptions& options, const ClickData& data);

}  // namespace lockstep::apps

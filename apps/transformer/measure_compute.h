#pragma once
#include "apps/transformer/language_data.h"
#include "apps/transformer/train_options.h"

namespace lockstep::apps {

/// Seconds for one micro-batch, forward and backward, on one rank with nothing beside it: the
/// median of a few, for a modelled cluster that was not told. Not the same from run to run, which
/// is why run.json keeps it.
double measure_compute(const TrainOptions& options, const LanguageData& data);

}  // namespace lockstep::apps

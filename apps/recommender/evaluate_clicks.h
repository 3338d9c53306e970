#pragma once
#include "apps/recommender/dlrm.h"
#include "data/clicks.h"
#include "distributed/tables/table_sync.h"

#include <optional>

namespace lockstep::apps {

/// What a model makes of held-out samples.
struct ClickEvaluation {
  std::optional<double> auc;  ///< nothing where all samples are of one class, or a logit is NaN
  double log_loss = 0;        ///< mean, nats a sample
  std::optional<double> calibration;  ///< predicted clicks / observed ones; nothing without a click
  std::optional<double> calibration_error;  ///< expected calibration error, ten bins
  int64_t samples = 0;
  int signal = 0;  ///< the one that cut it short: then there are no figures
};

/// Goes once through the last `count` held-out samples, `rows` at a time, every sample exactly once
/// over all ranks; the same result on all of them: they send each other scores and sums, no means.
/// Without `comm`: on this rank alone. A signal to any rank ends it early. Records nothing, takes
/// no modelled time.
ClickEvaluation evaluate_clicks(Dlrm& model, distributed::TableSync& tables,
                                const data::ClickSource& source, int64_t count, int64_t rows,
                                distributed::Communicator* comm);

}  // namespace lockstep::apps

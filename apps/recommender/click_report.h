#pragma once
#include <nlohmann/json.hpp>

#include "apps/recommender/evaluate_clicks.h"
#include "data/best_possible.h"

namespace lockstep::apps {

/// `auc` (null where it is undefined) `log_loss` `calibration` `calibration_error`; where the best
/// possible is known `best_auc` `best_log_loss` and `share_of_best_auc`: how far the AUC is on the
/// way from 0.5 to the best.
nlohmann::ordered_json evaluation_json(const ClickEvaluation& seen,
                                       const std::optional<data::BestPossible>& best);
/// The same in one line for people.
std::string evaluation_text(const ClickEvaluation& seen,
                            const std::optional<data::BestPossible>& best);

/// `bad_rows`: how many malformed rows were left out, and the first of them; nothing without any.
nlohmann::ordered_json bad_rows_json(const data::ClickSource& source);
/// The same in lines; empty without any.
std::string bad_rows_text(const data::ClickSource& source);

/// Weights of all tables.
int64_t table_elements(const data::ClickSchema& schema, int64_t width);

}  // namespace lockstep::apps

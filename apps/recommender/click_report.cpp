#include "apps/recommender/click_report.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::apps {
namespace {

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

// How far the AUC is on the way from 0.5 to the best; nothing where there is no way to go.
std::optional<double> share_of_best(const ClickEvaluation& seen,
                                    const std::optional<data::BestPossible>& best) {
  if (!seen.auc || !best || best->auc - 0.5 <= best->auc_error) return std::nullopt;
  return (*seen.auc - 0.5) / (best->auc - 0.5);
}

std::string auc_text(const ClickEvaluation& seen) {
  if (seen.auc) return fmt::format("AUC {:.4f}", *seen.auc);
  return std::isnan(seen.log_loss) ? "AUC undefined: a prediction is NaN"
                                   : "AUC undefined: its samples are of one class";
}

}  // namespace

nlohmann::ordered_json evaluation_json(const ClickEvaluation& seen,
                                       const std::optional<data::BestPossible>& best) {
  nlohmann::ordered_json json{{"auc", or_null(seen.auc)},
                              {"log_loss", seen.log_loss},
                              {"calibration", or_null(seen.calibration)},
                              {"calibration_error", or_null(seen.calibration_error)}};
  if (!best) return json;
  json["best_auc"] = best->auc;
  json["best_log_loss"] = best->log_loss;
  json["share_of_best_auc"] = or_null(share_of_best(seen, best));
  return json;
}

std::string evaluation_text(const ClickEvaluation& seen,
                            const std::optional<data::BestPossible>& best) {
  std::string text = auc_text(seen);
  if (const auto share = share_of_best(seen, best))
    text +=
        fmt::format(" ({:.0f} % of the way from 0.5 to the best, {:.4f})", 100 * *share, best->auc);
  text += fmt::format(", log-loss {:.4f}", seen.log_loss);
  if (best) text += fmt::format(" (best {:.4f})", best->log_loss);
  if (seen.calibration) text += fmt::format(", calibration {:.3f}", *seen.calibration);
  if (seen.calibration_error)
    text += fmt::format(", calibration error {:.4f}", *seen.calibration_error);
  return text;
}

nlohmann::ordered_json bad_rows_json(const data::ClickSource& source) {
  const data::BadRowReport bad = source.bad_rows();
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (bad.count > 0) json["bad_rows"] = {{"count", bad.count}, {"first", bad.first}};
  return json;
}

std::string bad_rows_text(const data::ClickSource& source) {
  const data::BadRowReport bad = source.bad_rows();
  if (bad.count == 0) return "";
  std::string text = fmt::format("malformed rows left out: {}; the first:\n", bad.count);
  for (const std::string& line : bad.first) text += fmt::format("  {}\n", line);
  return text;
}

int64_t table_elements(const data::ClickSchema& schema, int64_t width) {
  int64_t rows = 0;
  for (const int64_t n : schema.table_rows) rows = checked_add(rows, n);
  return checked_mul(rows, width);
}

}  // namespace lockstep::apps

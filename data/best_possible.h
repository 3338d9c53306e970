#pragma once
#include <cstdint>
#include <span>

namespace lockstep::data {

/// What a model can reach at most, and how well that is known.
struct BestPossible {
  double auc = 0.5, auc_error = 0;  ///< with its standard error
  double log_loss = 0, log_loss_error = 0;
  double positives = 0;  ///< share of clicks
  int64_t samples = 0;
};

/// Of a source whose true logits are known, from those of a sample of it. Labels do not enter, only
/// their probabilities p, so there is no noise of labels in the result. The expected log-loss is
/// the mean of -p ln p - (1-p) ln(1-p): no model's is lower (Gibbs' inequality). The AUC is that of
/// the true probabilities as scores, each sample counting p as a positive and 1-p as a negative,
/// but not against itself: no score's expected AUC is higher (Neyman-Pearson: at every false
/// positive rate, thresholds of the true probability find the most positives). The standard error
/// of the AUC is that over 32 parts of the sample. UsageError for fewer than 64 logits.
BestPossible best_possible(std::span<const double> logits);

}  // namespace lockstep::data

#include "data/best_possible.h"

#include "data/log_loss.h"

#include "core/check.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::data {
namespace {

constexpr int64_t kParts = 32;

double expected_auc(std::span<const double> logits) {
  std::vector<double> sorted(logits.begin(), logits.end());
  std::ranges::sort(sorted);
  double below = 0, positives = 0, won = 0, itself = 0;  // below: negatives of lower logits
  for (size_t i = 0; i < sorted.size();) {
    double here_positive = 0, here_negative = 0;
    for (const double logit = sorted[i]; i < sorted.size() && sorted[i] == logit; ++i) {
      const double p = sigmoid(logit), q = sigmoid(-logit);
      here_positive += p;
      here_negative += q;
      itself += p * q;
    }
    won += here_positive * (below + here_negative / 2);
    below += here_negative;
    positives += here_positive;
  }
  const double pairs = positives * below - itself;
  return pairs > 0 ? (won - itself / 2) / pairs : 0.5;
}

// Of the mean of n numbers with these sums.
double standard_error(double sum, double squares, double n) {
  return std::sqrt(std::max(squares / n - sum / n * (sum / n), 0.0) / (n - 1));
}

}  // namespace

BestPossible best_possible(std::span<const double> logits) {
  const auto n = static_cast<int64_t>(logits.size());
  check(n >= 2 * kParts, "[data.best_possible] logits; expected at least {}, got {}", 2 * kParts,
        n);
  BestPossible best{.auc = expected_auc(logits), .samples = n};
  double sum = 0, squares = 0;
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t begin = n * part / kParts, end = n * (part + 1) / kParts;
    const double auc = expected_auc(logits.subspan(begin, end - begin));
    sum += auc;
    squares += auc * auc;
  }
  best.auc_error = standard_error(sum, squares, kParts);
  sum = squares = 0;
  for (const double logit : logits) {
    const double p = sigmoid(logit), loss = log_loss(logit, p);
    sum += loss;
    squares += loss * loss;
    best.positives += p / static_cast<double>(n);
  }
  best.log_loss = sum / static_cast<double>(n);
  best.log_loss_error = standard_error(sum, squares, static_cast<double>(n));
  return best;
}

}  // namespace lockstep::data

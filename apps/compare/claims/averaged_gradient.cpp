// B1a: "θ ← θ − η·(1/N)·Σ gᵢ is stable and unbiased": the mean of N ranks' gradients is that of the
// large batch, and its variance falls as 1/N.
#include "apps/compare/claims/averaged_gradient.h"

#include "apps/compare/claims/gpt_gradients.h"
#include "apps/compare/statistics/fits.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kRanks[] = {1, 2, 4, 8, 16, 32};
constexpr int64_t kLargest = 32;

// Σ over elements of the variance of means over n gradients, from disjoint groups.
double variance_of_means(const std::vector<std::vector<float>>& gradients, int64_t n) {
  const int64_t groups = static_cast<int64_t>(gradients.size()) / n;
  const size_t size = gradients[0].size();
  std::vector<double> sum(size), sum_of_squares(size);
  for (int64_t g = 0; g < groups; ++g)
    for (size_t i = 0; i < size; ++i) {
      double mean = 0;
      for (int64_t k = 0; k < n; ++k)
        mean += double{gradients[static_cast<size_t>(g * n + k)][i]} / static_cast<double>(n);
      sum[i] += mean;
      sum_of_squares[i] += mean * mean;
    }
  const auto count = static_cast<double>(groups);
  double variance = 0;
  for (size_t i = 0; i < size; ++i)
    variance += (sum_of_squares[i] - sum[i] * sum[i] / count) / (count - 1);
  return variance;
}

ordered_json measure(const ordered_json& p) {
  const int64_t blocks = p["blocks"], gradients = p["gradients"], batch = p["batch"];
  GptGradients model({.text = p["text"]});
  ordered_json answer;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * gradients * batch;
    std::vector<std::vector<float>> all;
    for (int64_t i = 0; i < gradients; ++i) all.push_back(model.mean(first + i * batch, batch));
    for (const int64_t n : kRanks)
      answer["variance"][static_cast<size_t>(block)].push_back(variance_of_means(all, n));
    std::vector<float> mean(all[0].size());
    for (size_t i = 0; i < mean.size(); ++i) {
      double sum = 0;
      for (int64_t k = 0; k < kLargest; ++k) sum += double{all[static_cast<size_t>(k)][i]};
      mean[i] = static_cast<float>(sum / kLargest);
    }
    answer["difference"].push_back(relative_difference(mean, model.mean(first, kLargest * batch)));
  }
  return answer;
}

Experiment experiment(const Setting& setting) {
  return {.name = "variance of averaged gradients",
          .parameters = {{"text", setting.text}, {"blocks", 8}, {"gradients", 256}, {"batch", 4}},
          .measure = measure};
}

Needs ask(const Setting& setting) { return {{}, {experiment(setting)}}; }

Outcome judge(const Setting& setting, Results& results) {
  const nlohmann::json& answer = results.answer(experiment(setting));
  const std::vector<double> ranks(std::begin(kRanks), std::end(kRanks));
  std::vector<double> exponents, mean(ranks.size());
  for (const auto& block : answer["variance"]) {
    const std::vector<double> variance = block;
    exponents.push_back(statistics::fit_power(ranks, variance, 0.95).coefficients[1]);
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] += variance[i] / variance[0] / static_cast<double>(answer["variance"].size());
  }
  double difference = 0;
  for (const double d : answer["difference"]) difference = std::fmax(difference, d);
  const Figure exponent =
      mean_figure("exponent of the variance in the number of ranks", "", exponents);
  Outcome outcome{.verdict = judge_averaging(difference, exponent)};
  outcome.figures = {{"mean of 32 ranks' gradients, difference from the large batch's, relative, "
                      "largest of 8",
                      "",
                      difference,
                      {},
                      0},
                     exponent};
  Series measured{.name = "measured", .x = ranks, .y = mean}, law{.name = "1/N", .x = ranks};
  for (const double n : ranks) law.y.push_back(1 / n);
  outcome.charts = {{.title = "Variance of the averaged gradient",
                     .kind = ChartKind::line,
                     .x = {"ranks averaged", "", Scale::log},
                     .y = {"variance over that of one rank", "", Scale::log},
                     .series = {measured, law}}};
  outcome.takeaway =
      "Averaging over ranks is training with a larger batch: the same gradient in expectation, "
      "1/N of the variance. Stability comes from that, not from the ranks; so does the need for a "
      "larger learning rate to make use of it.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B1a",
     .source = "document B, synchronous SGD",
     .statement = "Averaging the gradients of N cards is stable and unbiased.",
     .done = "Gradients of a small GPT on batches of 4 windows, 256 in each of 8 blocks of data: "
             "the mean of 32 against the gradient of the batch of 128, and the variance of means "
             "over N = 1 to 32 with a power law fitted to each block.",
     .rule =
         "Direction: reproduced where the mean of ranks differs from the large batch's gradient "
         "by at most 1e-6 (relative, L2), not where by more than 1e-4. Size: reproduced where "
         "the variance's exponent in N lies within -1 ± 0.1 (95 % interval over blocks), not "
         "where outside -1 ± 0.3.",
     .ask = ask,
     .judge = judge}};

}  // namespace

Verdict judge_averaging(double difference, const Figure& exponent) {
  return {at_most({"difference from the large batch's gradient", "", difference}, 1e-6, 1e-4,
                  Provenance::measured),
          within(exponent, {-1.1, -0.9}, {-1.3, -0.7}, Provenance::measured)};
}

}  // namespace lockstep::apps

// B4d: "precision loss accumulates in an FP16 all-reduce", and A4c: "adding directly in FP16
// overflows; update FP32 master weights". Real gradients of many ranks, added as a ring and a tree
// would add them in the type of the wire.
#include "apps/compare/claims/fp16_sums.h"

#include "apps/compare/claims/gpt_gradients.h"
#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/statistics/fits.h"
#include "apps/compare/verdict_rules.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kRanks[] = {2, 4, 8, 16, 32, 64};
constexpr int64_t kMost = 64, kTrainedRanks = 32, kOverflowRanks = 8;
constexpr double kMargin = 0.02;
constexpr double kRates[] = {1e-3, 2e-3, 4e-3, 8e-3};
constexpr double kLargestHalf = 65504;

struct Way {
  const char* name;
  DType dtype;
  SumOrder order;
};
constexpr Way kWays[] = {{"fp16, ring", DType::f16, SumOrder::ring},
                         {"fp16, tree", DType::f16, SumOrder::tree},
                         {"bf16, ring", DType::bf16, SumOrder::ring},
                         {"bf16, tree", DType::bf16, SumOrder::tree},
                         {"sent in fp16, added in fp32", DType::f32, SumOrder::ring}};

float rounded(float value, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(bfloat16(value))
                              : static_cast<float>(half(value));
}

std::vector<std::vector<float>> gradients_of(const std::string& text, int64_t first, int64_t ranks,
                                             double scale) {
  GptGradients model({.text = text});
  std::vector<std::vector<float>> all;
  for (int64_t r = 0; r < ranks; ++r) {
    all.push_back(model.mean(first + 4 * r, 4));
    for (float& value : all.back()) value *= static_cast<float>(scale);
  }
  return all;
}

std::vector<double> exact_sum(const std::vector<std::vector<float>>& ranks) {
  std::vector<double> sum(ranks[0].size());
  for (const auto& rank : ranks)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{rank[i]};
  return sum;
}

// Relative L2 error of sums over the first n ranks, by way and block of data. Scaled by 1024, so
// that rounding and not underflow is looked at.
ordered_json measure_errors(const ordered_json& p) {
  ordered_json answer;
  for (int64_t block = 0; block < p["blocks"]; ++block) {
    const auto all = gradients_of(p["text"], block * 4 * kMost, kMost, 1024);
    for (const Way& way : kWays) {
      ordered_json errors = ordered_json::array();
      for (const int64_t n : kRanks) {
        const std::vector<std::vector<float>> some(all.begin(), all.begin() + n);
        const std::vector<double> exact = exact_sum(some);
        const std::vector<float> sum = sum_in(way.dtype, way.order, some);
        double off = 0, norm = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
          off += (double{sum[i]} - exact[i]) * (double{sum[i]} - exact[i]);
          norm += exact[i] * exact[i];
        }
        errors.push_back(std::sqrt(off / norm));
      }
      answer[way.name].push_back(errors);
    }
  }
  return answer;
}

Experiment errors(const Setting& setting) {
  return {.name = "errors of sums",
          .parameters = {{"text", setting.text}, {"blocks", 8}},
          .measure = measure_errors,
          .seconds = 4};
}

RunRequest wire(const Setting& setting) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--batch", 1)
      .with("--ranks", kTrainedRanks);
}
RunRequest added_in_fp16(const RunRequest& request) {
  return request.with("--wire", "fp16").with("--reduce-in", "wire");
}
RunRequest tuned(const RunRequest& arm, const Setting& setting, Results& results) {
  return arm.with("--lr", best_rate(arm, kRates, setting, results));
}
void add(Needs& needs, const std::vector<RunRequest>& runs) {
  std::ranges::copy(runs, std::back_inserter(needs.runs));
}

Needs ask_errors(const Setting& setting) {
  return {tuning_runs(wire(setting), kRates, setting), {errors(setting)}};
}

Needs ask_errors_again(const Setting& setting, Results& results) {
  const RunRequest fp32 = tuned(wire(setting), setting, results);
  Needs needs;
  add(needs, reporting_runs(fp32, setting));
  add(needs, reporting_runs(added_in_fp16(fp32), setting));
  return needs;
}

Outcome judge_errors(const Setting& setting, Results& results) {
  const nlohmann::json& answer = results.answer(errors(setting));
  const std::vector<double> ranks(std::begin(kRanks), std::end(kRanks));
  Outcome outcome;
  Chart chart{.title = "Error of the sum over ranks",
              .kind = ChartKind::line,
              .x = {"ranks", "", Scale::log},
              .y = {"relative L2 error", "", Scale::log}};
  Figure ring;
  for (const Way& way : kWays) {
    std::vector<double> exponents, mean(ranks.size());
    for (const auto& block : answer[way.name]) {
      const std::vector<double> by_ranks = block;
      exponents.push_back(statistics::fit_power(ranks, by_ranks, 0.95).coefficients[1]);
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] += by_ranks[i] / static_cast<double>(answer[way.name].size());
    }
    const Figure exponent = mean_figure(
        fmt::format("exponent of the error in the number of ranks, {}", way.name), "", exponents);
    if (&way == &kWays[0]) ring = exponent;
    outcome.figures.push_back(exponent);
    outcome.figures.push_back(
        {fmt::format("relative error over 64 ranks, {}", way.name), "", mean.back()});
    chart.series.push_back({.name = way.name, .x = ranks, .y = mean});
  }
  const RunRequest fp32 = tuned(wire(setting), setting, results);
  const auto loss = statistics::test_margin(
      statistics::paired_differences(losses_of(added_in_fp16(fp32), setting, results),
                                     losses_of(fp32, setting, results)),
      kMargin);
  outcome.figures.push_back(
      difference_figure("loss of 32 ranks added in fp16, over an fp32 wire's", "nats", loss));
  outcome.verdict = judge_accumulated_error(ring, loss);
  outcome.charts = {chart};
  outcome.takeaway =
      "Rounding after every addition does add up with the number of ranks, less in a tree than in "
      "a ring, and adding in fp32 what was sent in fp16 stops it. It is still small beside what a "
      "gradient varies by from batch to batch: look at the loss before you pay for it.";
  return outcome;
}

const RegisterClaim accumulated{
    {.id = "B4d",
     .source = "document B, mixed precision",
     .statement = "Precision loss accumulates in an FP16 all-reduce.",
     .done = "Gradients of 64 ranks of a small GPT, scaled by 1024, in 8 blocks of data, added in "
             "fp16 and bf16 in the order of a ring and of a tree, against fp64; a power law in the "
             "number of ranks fitted to the error. Then training on 32 ranks with sums rounded to "
             "fp16 after every addition, in the order of ranks, against an fp32 wire at the same "
             "learning rate.",
     .rule = "Direction: reproduced where the exponent of the fp16 ring's error lies above 0.25 "
             "(95 % interval over blocks), not below 0.1. Size, that it costs accuracy: reproduced "
             "where the loss is more than 0.02 nats higher, not where equivalent (paired test).",
     .needed = {.steps = 200, .seeds = 3},
     .quick = {.steps = 200, .seeds = 3},
     .standard = {.steps = 400, .seeds = 5},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask_errors,
     .ask_again = ask_errors_again,
     .judge = judge_errors}};

bool overflows(const std::vector<float>& values) {
  return std::ranges::any_of(values, [](float v) { return !std::isfinite(v); });
}

// The largest power of two at which no rank's gradient overflows; whether sums do there.
ordered_json measure_overflow(const ordered_json& p) {
  auto ranks = gradients_of(p["text"], 0, kOverflowRanks, 1);
  double largest = 0;
  for (const auto& rank : ranks)
    for (const float v : rank) largest = std::max(largest, std::abs(double{v}));
  const double scale = std::exp2(std::floor(std::log2(kLargestHalf / largest)));
  for (auto& rank : ranks)
    for (float& v : rank) v *= static_cast<float>(scale);
  auto divided = ranks;
  for (auto& rank : divided)
    for (float& v : rank) v /= static_cast<float>(kOverflowRanks);
  return {{"scale", scale},
          {"sum_overflows", overflows(sum_in(DType::f16, SumOrder::ring, ranks))},
          {"others_overflow", overflows(sum_in(DType::f32, SumOrder::ring, ranks)) ||
                                  overflows(sum_in(DType::f16, SumOrder::ring, divided))}};
}

Experiment overflow(const Setting& setting) {
  return {.name = "overflow of sums",
          .parameters = {{"text", setting.text}},
          .measure = measure_overflow};
}

RunRequest half_arm(const Setting& setting, const char* master) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--batch", 16)
      .with("--precision", "half-fp16")
      .with("--master", master);
}

Needs ask_half(const Setting& setting) {
  Needs needs{{}, {overflow(setting)}};
  for (const char* master : {"on", "off"})
    add(needs, tuning_runs(half_arm(setting, master), kRates, setting));
  return needs;
}

Needs ask_half_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const char* master : {"on", "off"})
    add(needs, reporting_runs(tuned(half_arm(setting, master), setting, results), setting));
  return needs;
}

Outcome judge_half(const Setting& setting, Results& results) {
  const nlohmann::json& found = results.answer(overflow(setting));
  const auto losses = [&](const char* master) {
    return losses_of(tuned(half_arm(setting, master), setting, results), setting, results);
  };
  const HalfSums sums{found["sum_overflows"], found["others_overflow"],
                      statistics::test_margin(
                          statistics::paired_differences(losses("off"), losses("on")), kMargin)};
  Outcome outcome{.verdict = {judge_half_sums(sums), {}}};
  outcome.figures = {
      {"loss scale at which no gradient overflows, their sum over 8 ranks may", "", found["scale"]},
      difference_figure("loss without fp32 master weights, over with", "nats", sums.no_master)};
  Chart chart{.title = "fp16 parameters with and without fp32 master weights",
              .kind = ChartKind::line,
              .x = {"steps"},
              .y = {"training loss", "nats"}};
  for (const char* master : {"on", "off"}) {
    const Points curve =
        results
            .result(
                tuned(half_arm(setting, master), setting, results).with("--seed", setting.seeds[0]))
            .series("loss");
    chart.series.push_back(
        {.name = fmt::format("master {}", master), .x = curve.step, .y = curve.value});
  }
  outcome.charts = {chart};
  outcome.takeaway =
      "Divide before you add, or add in fp32: a loss scale that just fits one rank's gradients "
      "does "
      "not fit the sum of all. Keep fp32 master weights wherever parameters are fp16, since small "
      "steps are rounded away otherwise.";
  return outcome;
}

const RegisterClaim masters{
    {.id = "A4c",
     .source = "document A, mixed precision",
     .statement = "Adding gradients directly in FP16 overflows, and updates need FP32 master "
                  "weights.",
     .done =
         "Gradients of 8 ranks at the largest power of two at which none overflows, added in "
         "fp16, in fp32, and in fp16 after division by 8. Then a small GPT with fp16 parameters, "
         "with and without fp32 master weights, each at its own learning rate.",
     .rule =
         "Reproduced where the fp16 sum overflows and the other two do not, and the loss without "
         "master weights is more than 0.02 nats higher (paired test); in part where one of "
         "these holds.",
     .needed = {.steps = 300, .seeds = 3},
     .quick = {.steps = 300, .seeds = 3},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask_half,
     .ask_again = ask_half_again,
     .judge = judge_half}};

}  // namespace

std::vector<float> sum_in(DType dtype, SumOrder order,
                          const std::vector<std::vector<float>>& ranks) {
  const size_t n = ranks.size();
  const DType sent = dtype == DType::f32 ? DType::f16 : dtype;
  const auto add_up = [&](float a, float b) {
    return dtype == DType::f32 ? a + b : rounded(a + b, dtype);
  };
  std::vector<float> sums(ranks[0].size()), column(n);
  for (size_t i = 0; i < sums.size(); ++i) {
    // A ring cuts the buffer into n chunks, the sum of each beginning at another rank.
    const size_t first = order == SumOrder::ring ? i * n / sums.size() : 0;
    for (size_t r = 0; r < n; ++r) column[r] = rounded(ranks[(first + r) % n][i], sent);
    if (order == SumOrder::ring) {
      for (size_t r = 1; r < n; ++r) column[0] = add_up(column[0], column[r]);
    } else {
      for (size_t gap = 1; gap < n; gap *= 2)
        for (size_t r = 0; r + gap < n; r += 2 * gap)
          column[r] = add_up(column[r], column[r + gap]);
    }
    sums[i] = column[0];
  }
  return sums;
}

Verdict judge_accumulated_error(const Figure& exponent, const statistics::PairedTest& loss) {
  return {
      at_least(exponent, 0.25, 0.1, Provenance::measured),
      larger(difference_figure("loss of 32 ranks added in fp16, over an fp32 wire's", "nats", loss),
             loss)};
}

Judgement judge_half_sums(const HalfSums& sums) {
  const bool overflow = sums.sum_overflows && !sums.others_overflow;
  const Judgement parts[] = {
      {overflow ? Finding::reproduced : Finding::not_reproduced, Provenance::measured,
       fmt::format("the fp16 sum of 8 ranks {}, sums in fp32 or of divided gradients {}",
                   sums.sum_overflows ? "overflows" : "does not overflow",
                   sums.others_overflow ? "overflow, too" : "do not")},
      larger(
          difference_figure("loss without fp32 master weights, over with", "nats", sums.no_master),
          sums.no_master)};
  return all_of(parts);
}

}  // namespace lockstep::apps

// B4c: "with AMP keep k <= 4: fp16 micro-gradients added many times lose precision; scale the loss
// at every micro-step". Only parameters in half precision have fp16 gradients: under autocast they
// are fp32, and there is nothing to lose.
#include "apps/compare/claims/half_accumulation.h"

#include "apps/compare/claims/gpt_gradients.h"
#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <tuple>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMicro[] = {1, 2, 4, 5, 6, 8, 12, 16, 32, 64, 128, 256, 512, 1024, 2048};
constexpr int64_t kGlobal[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
constexpr int64_t kMicroBatch = 4, kGlobalBatch = 2048;  // windows
constexpr int64_t kTrained[] = {4, 8, 32}, kTrainedBatch = 32;
constexpr int64_t kDecides = 32, kClaimedFirst = 5, kClaimedLast = 8;
constexpr double kKnee = 0.1;     // of the sampling error
constexpr double kMargin = 0.02;  // nats
constexpr float kScale = 1024;
constexpr double kRates[] = {1e-3, 2e-3, 4e-3, 8e-3};

struct Way {
  const char* name;
  DType dtype;
  Scaled scaled;
  Division division;
};
constexpr Way kWays[] = {
    {"fp16, loss/k, scaled", DType::f16, Scaled::all, Division::before},  // as it is advised
    {"fp16, loss/k, not scaled", DType::f16, Scaled::none, Division::before},
    {"fp16, loss/k, only the last one scaled", DType::f16, Scaled::last, Division::before},
    {"fp16, divided last, scaled", DType::f16, Scaled::all, Division::after},
    {"fp16, divided last, not scaled", DType::f16, Scaled::none, Division::after},
    {"bf16, loss/k, not scaled", DType::bf16, Scaled::none, Division::before}};
constexpr const char* kBatches[] = {"fixed micro-batch", "fixed global batch"};

// What k micro-gradients do in each way: norms of errors.
ordered_json errors_at(GptGradients& model, int64_t micro, int64_t k) {
  std::vector<HalfSum> sums;
  for (const Way& way : kWays)
    sums.emplace_back(way.dtype, way.scaled, way.division, k, model.size());
  std::vector<double> exact(static_cast<size_t>(model.size()));
  for (int64_t i = 0; i < k; ++i) {
    const std::vector<float> gradient = model.mean(i * micro, micro);
    for (size_t j = 0; j < exact.size(); ++j) exact[j] += gradient[j] / static_cast<double>(k);
    for (HalfSum& sum : sums) sum.add(gradient);
  }
  ordered_json errors = ordered_json::array();
  for (const HalfSum& sum : sums) {
    const std::vector<double> mean = sum.mean();
    double squares = 0;
    for (size_t j = 0; j < exact.size(); ++j)
      squares += (mean[j] - exact[j]) * (mean[j] - exact[j]);
    errors.push_back(std::sqrt(squares));  // null where it overflowed
  }
  return errors;
}

// Root of the trace of the covariance of one window's gradient.
double deviation_of_a_window(GptGradients& model, int64_t windows) {
  std::vector<double> sum(static_cast<size_t>(model.size()));
  double squares = 0;
  for (int64_t i = 0; i < windows; ++i) {
    const std::vector<float> gradient = model.mean(i, 1);
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += gradient[j];
    squares += norm_of(gradient) * norm_of(gradient);
  }
  const auto n = static_cast<double>(windows);
  double of_mean = 0;
  for (const double s : sum) of_mean += s / n * (s / n);
  return std::sqrt((squares - n * of_mean) / (n - 1));
}

// errors[batches][seed][k][way], over the sampling error of the mean over as many windows.
ordered_json measure_errors(const ordered_json& p) {
  const int64_t most = p["most"];
  ordered_json answer;
  for (uint64_t seed = 1; seed <= p["seeds"]; ++seed) {
    GptGradients model({.text = p["text"], .seed = seed});
    const double deviation = deviation_of_a_window(model, 256);
    const auto add = [&](const char* batches, std::span<const int64_t> ks, auto micro_of) {
      ordered_json by_k = ordered_json::array();
      for (const int64_t k : ks) {
        if (k > most) break;
        const int64_t micro = micro_of(k);
        ordered_json errors = errors_at(model, micro, k);
        const double sampling = deviation / std::sqrt(static_cast<double>(k * micro));
        for (auto& error : errors) error = error.get<double>() / sampling;
        by_k.push_back(errors);
      }
      answer[batches].push_back(by_k);
    };
    add(kBatches[0], kMicro, [](int64_t) { return kMicroBatch; });
    add(kBatches[1], kGlobal, [](int64_t k) { return kGlobalBatch / k; });
  }
  return answer;
}

Experiment errors(const Setting& setting) {
  const bool quick = setting.extent == Extent::quick;
  return {.name = "errors of accumulation",
          .parameters = {{"text", setting.text}, {"seeds", 4}, {"most", quick ? 64 : 2048}},
          .measure = measure_errors,
          .seconds = quick ? 8.0 : 90.0};
}

RunRequest base(const Setting& setting, int64_t k) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--accumulate", k)
      .with("--batch", kTrainedBatch / k);
}
RunRequest tuned(const Setting& setting, int64_t k, Results& results) {
  return base(setting, k)
      .with("--lr", best_rate(base(setting, kTrained[0]), kRates, setting, results));
}
RunRequest in_half(const RunRequest& request, const char* added_in) {
  return request.with("--precision", "half-fp16").with("--accumulate-in", added_in);
}

Needs ask(const Setting& setting) {
  return {tuning_runs(base(setting, kTrained[0]), kRates, setting), {errors(setting)}};
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const int64_t k : kTrained) {
    const RunRequest fp32 = tuned(setting, k, results);
    for (const RunRequest& arm : {fp32, in_half(fp32, "grads"), in_half(fp32, "fp32")})
      std::ranges::copy(reporting_runs(arm, setting), std::back_inserter(needs.runs));
  }
  return needs;
}

// [k][way] of all seeds: the mean, the least and the most.
struct Range {
  double mean = 0;
  Interval seen{INFINITY, -INFINITY};
};
Range range_of(const nlohmann::json& seeds, size_t k, size_t way) {
  Range range;
  for (const auto& seed : seeds) {
    const auto& found = seed[k][way];
    const double value = found.is_number() ? found.get<double>() : INFINITY;
    range.mean += value / static_cast<double>(seeds.size());
    range.seen = {std::min(range.seen.low, value), std::max(range.seen.high, value)};
  }
  return range;
}

Chart curves(const nlohmann::json& seeds, const char* batches, std::span<const int64_t> ks) {
  Chart chart{.title = fmt::format("Rounding beside sampling, {}", batches),
              .kind = ChartKind::line,
              .x = {"micro-batches", "", Scale::log},
              .y = {"rounding error over sampling error", "", Scale::log},
              .note = "A sum that overflowed is a gap. The knee is where a curve crosses 0.1."};
  for (size_t way = 0; way < std::size(kWays); ++way) {
    Series series{.name = kWays[way].name};
    for (size_t i = 0; i < seeds[0].size(); ++i) {
      series.x.push_back(static_cast<double>(ks[i]));
      series.y.push_back(range_of(seeds, i, way).mean);
    }
    chart.series.push_back(series);
  }
  return chart;
}

Outcome judge(const Setting& setting, Results& results) {
  const nlohmann::json& answer = results.answer(errors(setting));
  Outcome outcome;
  std::vector<HalfAccumulation> points;
  const nlohmann::json &micro = answer[kBatches[0]], &global = answer[kBatches[1]];
  for (size_t i = 0; i < micro[0].size(); ++i) {
    HalfAccumulation point{.k = kMicro[i], .rounding = range_of(micro, i, 0).seen, .loss = {}};
    // The worse of both ways to have k micro-batches.
    const auto* const same = std::ranges::find(kGlobal, point.k);
    if (same != std::end(kGlobal)) {
      const Interval other =
          range_of(global, static_cast<size_t>(same - std::begin(kGlobal)), 0).seen;
      point.rounding = {std::max(point.rounding.low, other.low),
                        std::max(point.rounding.high, other.high)};
    }
    if (std::ranges::find(kTrained, point.k) != std::end(kTrained)) {
      const RunRequest fp32 = tuned(setting, point.k, results);
      const auto gap = [&](const RunRequest& baseline, const char* name) {
        const auto test = statistics::test_margin(
            statistics::paired_differences(losses_of(in_half(fp32, "grads"), setting, results),
                                           losses_of(baseline, setting, results)),
            kMargin);
        outcome.figures.push_back(difference_figure(
            fmt::format("loss of {} micro-batches added in fp16, over {}", point.k, name), "nats",
            test));
        return test;
      };
      point.loss = gap(fp32, "fp32's");
      gap(in_half(fp32, "fp32"), "half-fp16's added in fp32");
    }
    points.push_back(point);
  }
  for (const auto& [seeds, name, ks] :
       {std::tuple{&micro, kBatches[0], std::span<const int64_t>(kMicro)},
        std::tuple{&global, kBatches[1], std::span<const int64_t>(kGlobal)}}) {
    for (size_t i = 0; i < (*seeds)[0].size(); ++i)
      for (size_t way = 0; way < std::size(kWays); ++way)
        if (way == 0 || ks[i] == kDecides)
          outcome.figures.push_back({fmt::format("rounding over sampling error, {}, {}, k = {}",
                                                 name, kWays[way].name, ks[i]),
                                     "", range_of(*seeds, i, way).mean});
    outcome.charts.push_back(curves(*seeds, name, ks));
  }
  outcome.verdict = judge_half_accumulation(points);
  outcome.takeaway =
      "What rounding takes from a gradient is to be compared with what the choice of samples "
      "does to it anyway. Add micro-gradients in fp32 if memory allows, and then no k is too "
      "large; scale every micro-step with the same scale, since one that is left out is lost.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B4c",
     .source = "document B, gradient accumulation",
     .statement = "With AMP keep k <= 4: fp16 micro-gradients added many times lose precision.",
     .done = "Gradients of a small GPT as it begins, of k = 1 to 2048 micro-batches (--quick: to "
             "64) of 4 windows each, or of 2048 windows in all, rounded to fp16 and added in it, "
             "with loss/k and divided last, scaled by 1024 at every micro-step, at none, at the "
             "last only; beside it bf16. The error against fp64 over the gradient's sampling "
             "error, for four beginnings with data of their own. Then training with 4, 8 and 32 "
             "micro-batches whose gradients are added in fp16 (half-fp16), against fp32, and "
             "against fp16 gradients added in fp32. Under autocast (amp-*) gradients are fp32 and "
             "the premise fails.",
     .rule = "The knee is the first k at which the rounding error of fp16 with loss/k and a scale "
             "at every micro-step is above 10 % of the sampling error at every beginning, with a "
             "fixed micro-batch or a fixed global batch, or the final loss is more than 0.02 nats "
             "above fp32's (paired test). Direction: reproduced where there is one up to 32, "
             "refuted where there is none up to 32. Size: reproduced where it is at 5 to 8, "
             "refuted where there is none up to 32, else in part. A k before it that beginnings "
             "or seeds do not agree on leaves both open.",
     .needed = {.steps = 200, .seeds = 3},
     .quick = {.steps = 200, .seeds = 3},
     .standard = {.steps = 200, .seeds = 5},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

float rounded(float value, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(bfloat16(value))
                              : static_cast<float>(half(value));
}

}  // namespace

HalfSum::HalfSum(DType dtype, Scaled scaled, Division division, int64_t k, int64_t numel)
    : dtype_(dtype),
      scaled_(scaled),
      division_(division),
      k_(k),
      sum_(static_cast<size_t>(numel)) {}

void HalfSum::add(std::span<const float> gradient) {
  check(added_ < k_ && gradient.size() == sum_.size(),
        "[compare.half_sum] one of {} gradients of {} elements; expected that, got {} of {}", k_,
        sum_.size(), added_ + 1, gradient.size());
  ++added_;
  float factor = 1;
  if (scaled_ == Scaled::all || (scaled_ == Scaled::last && added_ == k_)) factor *= kScale;
  if (division_ == Division::before) factor /= static_cast<float>(k_);
  for (size_t i = 0; i < sum_.size(); ++i)
    sum_[i] = rounded(sum_[i] + rounded(gradient[i] * factor, dtype_), dtype_);
}

std::vector<double> HalfSum::mean() const {
  double divisor = scaled_ == Scaled::none ? 1 : kScale;
  if (division_ == Division::after) divisor *= static_cast<double>(k_);
  std::vector<double> mean(sum_.size());
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = double{sum_[i]} / divisor;
  return mean;
}

Verdict judge_half_accumulation(const std::vector<HalfAccumulation>& points) {
  using statistics::Shown;
  const auto verdict = [](Finding direction, Finding size, const std::string& reason) {
    return Verdict{{direction, Provenance::measured, reason},
                   Judgement{size, Provenance::measured, reason}};
  };
  double worst = 0;
  for (const HalfAccumulation& point : points) {
    if (point.k > kDecides) break;
    const bool rounds = point.rounding.low > kKnee;
    if (rounds || (point.loss && point.loss->shown == Shown::above))
      return verdict(
          Finding::reproduced,
          kClaimedFirst <= point.k && point.k <= kClaimedLast ? Finding::reproduced
                                                              : Finding::in_part,
          fmt::format(
              "the knee is at k = {}: {}", point.k,
              rounds
                  ? fmt::format("rounding is {} to {} of the sampling error",
                                short_number(point.rounding.low), short_number(point.rounding.high))
                  : text_of(difference_figure("loss over fp32's", "nats", *point.loss))));
    const bool fine =
        point.rounding.high <= kKnee && (!point.loss || point.loss->shown == Shown::equivalent ||
                                         point.loss->shown == Shown::below);
    if (!fine)
      return verdict(
          Finding::inconclusive, Finding::inconclusive,
          fmt::format("not decided at k = {}: rounding is {} to {} of the sampling "
                      "error{}",
                      point.k, short_number(point.rounding.low), short_number(point.rounding.high),
                      point.loss ? ", " + text_of(difference_figure("loss over fp32's", "nats",
                                                                    *point.loss))
                                 : ""));
    worst = std::max(worst, point.rounding.high);
  }
  if (points.empty() ||
      std::ranges::none_of(points, [](const HalfAccumulation& p) { return p.k == kDecides; }))
    return verdict(Finding::inconclusive, Finding::inconclusive, "k = 32 was not measured");
  return verdict(Finding::not_reproduced, Finding::not_reproduced,
                 fmt::format("no knee up to k = {}: rounding is at most {} of the sampling error",
                             kDecides, short_number(worst)));
}

}  // namespace lockstep::apps

// A1a, B3a: "1024 = 8 × 128: k micro-batches with loss/k equal one large batch and need less
// memory"; document B leaves the division out.
#include "apps/compare/claims/micro_batches.h"

#include "apps/compare/claims/gpt_gradients.h"
#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/verdict_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kBatch = 1024, kMicro = 8;  // the document's
constexpr int64_t kTrained = 64;              // of the runs that learn
constexpr double kMargin = 0.02;
constexpr int64_t kSplits[] = {1, 2, 4, 8, 16, 32};

struct Optimizer {
  const char *name, *spec;
  double rates[4];
};
constexpr Optimizer kOptimizers[] = {{"SGD", "sgd", {0.125, 0.25, 0.5, 1}},
                                     {"AdamW", "adamw", {1e-3, 2e-3, 4e-3, 8e-3}}};

// As training adds up: sums over tokens, micro-batch by micro-batch, in fp32.
ordered_json measure_gradient(const ordered_json& p) {
  GptGradients model({.text = p["text"]});
  const int64_t batch = p["batch"], micro = p["micro"];
  const std::vector<float> whole = model.mean(0, batch);
  std::vector<float> sum(whole.size(), 0.0f);
  for (int64_t k = 0; k < micro; ++k) {
    const std::vector<float> part = model.mean(k * (batch / micro), batch / micro);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  for (float& value : sum) value /= static_cast<float>(micro);
  double worst = 0;
  for (const optim::ParamSlice& tensor : model.tensors()) {
    const auto of = [&](const std::vector<float>& all) {
      return std::span(all).subspan(static_cast<size_t>(tensor.begin),
                                    static_cast<size_t>(tensor.end - tensor.begin));
    };
    if (norm_of(of(whole)) > 0) worst = std::max(worst, relative_difference(of(sum), of(whole)));
  }
  return {{"gradient", relative_difference(sum, whole)}, {"worst_tensor", worst}};
}

Experiment gradient(const Setting& setting) {
  return {.name = "gradient of micro-batches",
          .parameters = {{"text", setting.text}, {"batch", kBatch}, {"micro", kMicro}},
          .measure = measure_gradient};
}

// Two steps are enough to have held whatever a step holds.
RunRequest held(int64_t split) {
  RunRequest request = tiny_gpt(1, 2)
                           .with("--width", 64)
                           .with("--context", 32)
                           .with("--batch", kBatch / split)
                           .with("--accumulate", split)
                           .with("--eval-every", 0);
  request.company = Company::alone;
  return request;
}

RunRequest arm(const Setting& setting, const Optimizer& optimizer, int64_t split) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--optimizer", optimizer.spec)
      .with("--batch", kTrained / split)
      .with("--accumulate", split);
}

Needs ask(const Setting& setting) {
  Needs needs{{}, {gradient(setting)}};
  for (const int64_t split : kSplits) needs.runs.push_back(held(split));
  for (const Optimizer& optimizer : kOptimizers)
    std::ranges::copy(tuning_runs(arm(setting, optimizer, 1), optimizer.rates, setting),
                      std::back_inserter(needs.runs));
  return needs;
}

struct Arms {
  RunRequest large, micro, undivided, undivided_slower;
};
Arms arms_of(const Setting& setting, const Optimizer& optimizer, Results& results) {
  const double rate = best_rate(arm(setting, optimizer, 1), optimizer.rates, setting, results);
  const RunRequest micro = arm(setting, optimizer, kMicro).with("--lr", rate),
                   undivided = micro.with("--teach", "no-division");
  return {arm(setting, optimizer, 1).with("--lr", rate), micro, undivided,
          undivided.with("--lr", rate / kMicro)};
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const Optimizer& optimizer : kOptimizers) {
    const Arms arms = arms_of(setting, optimizer, results);
    for (const RunRequest& a : {arms.large, arms.micro, arms.undivided, arms.undivided_slower})
      std::ranges::copy(reporting_runs(a, setting), std::back_inserter(needs.runs));
  }
  return needs;
}

Outcome judge(const Setting& setting, Results& results) {
  const nlohmann::json& difference = results.answer(gradient(setting));
  MicroBatches m{.gradient = difference["gradient"], .worst_tensor = difference["worst_tensor"]};
  // What a process holds anyway is that of the smallest micro-batch, nearly.
  const auto bytes = [&](int64_t split) {
    return results.result(held(split)).figure("peak_memory_bytes");
  };
  const double floor = bytes(kSplits[std::size(kSplits) - 1]);
  m.memory = (bytes(kMicro) - floor) / (bytes(1) - floor);

  Outcome outcome;
  outcome.figures = {
      {"gradient of 8 micro-batches, difference from the large batch's, relative", "", m.gradient},
      {"the same of the tensor that differs most", "", m.worst_tensor},
      {"memory that 8 micro-batches take beyond 32, over what one batch does",
       "",
       m.memory,
       {},
       1}};
  Series memory{.name = "most memory held"}, speed{.name = "samples a second"};
  for (const int64_t split : kSplits) {
    memory.x.push_back(static_cast<double>(split));
    memory.y.push_back(bytes(split) / 1e6);
    speed.x.push_back(static_cast<double>(split));
    speed.y.push_back(results.result(held(split)).figure("samples_per_s"));
  }
  outcome.charts = {{.title = "Memory against the number of micro-batches of a batch of 1024",
                     .kind = ChartKind::line,
                     .x = {"micro-batches", "", Scale::log},
                     .y = {"most memory held", "MB", Scale::log},
                     .series = {memory}},
                    {.title = "Speed against the number of micro-batches",
                     .kind = ChartKind::line,
                     .x = {"micro-batches", "", Scale::log},
                     .y = {"samples a second"},
                     .series = {speed},
                     .note = "Each from a single run of two steps: a hint, not a measurement."}};
  for (const Optimizer& optimizer : kOptimizers) {
    const Arms arms = arms_of(setting, optimizer, results);
    const statistics::BySeed large = losses_of(arms.large, setting, results);
    const auto add = [&](const char* name, const RunRequest& a) {
      const auto test = statistics::test_margin(
          statistics::paired_differences(losses_of(a, setting, results), large), kMargin);
      outcome.figures.push_back(difference_figure(
          fmt::format("loss of {}, {}, over the large batch's", name, optimizer.name), "nats",
          test));
      return test;
    };
    const auto test = add("8 micro-batches", arms.micro);
    if (&optimizer == &kOptimizers[0]) m.loss = test;
    add("8 micro-batches without the division", arms.undivided);
    add("8 micro-batches without the division at an eighth of the rate", arms.undivided_slower);
  }
  outcome.verdict = judge_micro_batches(m);
  outcome.takeaway =
      "Accumulation is the large batch, to rounding, for the memory of a micro-batch: divide the "
      "loss by the number of micro-batches. Without the division plain SGD needs that much smaller "
      "a learning rate; Adam divides by the gradient's size and hardly notices, and an eighth of "
      "the rate would be wrong.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "A1a",
     .source = "documents A (gradient accumulation) and B (B3a)",
     .statement = "k micro-batches with loss/k equal one large batch (1024 = 8 x 128) and need "
                  "less memory.",
     .done = "The gradient of 1024 windows at once and as the mean of 8 micro-batches of 128; the "
             "most memory that runs with 1 to 32 micro-batches hold; a small GPT trained with SGD "
             "and AdamW by batches of 64, by 8 micro-batches of 8, and by those without the "
             "division, at the same learning rate and at an eighth of it.",
     .rule =
         "Direction: reproduced where the whole gradient differs by at most 1e-6 (relative, "
         "L2), each tensor by at most 1e-5, and validation losses with SGD are equivalent within "
         "0.02 nats. Size, of memory: beyond what 32 micro-batches hold, 8 take at most a "
         "quarter of what one batch takes; in part up to three quarters.",
     .needed = {.steps = 200, .seeds = 3},
     .quick = {.steps = 200, .seeds = 3},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

}  // namespace

Verdict judge_micro_batches(const MicroBatches& m) {
  const Judgement parts[] = {
      at_most({"difference of the whole gradient", "", m.gradient}, 1e-6, 1e-6,
              Provenance::measured),
      at_most({"difference of the worst tensor", "", m.worst_tensor}, 1e-5, 1e-5,
              Provenance::measured),
      same(difference_figure("loss of 8 micro-batches over the large batch's", "nats", m.loss),
           m.loss)};
  return {all_of(parts), at_most({"memory of 8 micro-batches over one batch's", "", m.memory}, 0.25,
                                 0.75, Provenance::measured)};
}

}  // namespace lockstep::apps

// B1c: "the more cards, the longer the wait". The slowest of N is an order statistic: how fast it
// grows with N is a matter of the law that times follow.
#include "apps/compare/claims/waiting.h"

#include "apps/compare/claims/sleeping_ranks.h"
#include "apps/compare/statistics/paired.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep::apps {
namespace {

using distributed::virtual_cluster::Cluster, distributed::virtual_cluster::Durations;
using nlohmann::ordered_json;

constexpr int kRanks[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int kMeasuredRanks[] = {1, 2, 4, 8};
constexpr int64_t kSteps = 4000;
constexpr double kTolerance = 0.02;  // of a mean over kSteps steps

struct Law {
  const char *name, *jitter;
  double (*expected)(int n);
};
constexpr Law kLaws[] = {
    {"lognormal, σ = 0.1", "lognormal:0.1", [](int n) { return expected_lognormal(n, 0.1); }},
    {"lognormal, σ = 0.3", "lognormal:0.3", [](int n) { return expected_lognormal(n, 0.3); }},
    {"exponential, 30 %", "exponential:0.3", [](int n) { return expected_exponential(n, 0.3); }},
    {"Pareto, α = 3", "pareto:3", [](int n) { return expected_pareto(n, 3); }}};
constexpr const char* kMeasuredLaw = "lognormal:0.3";

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Durations durations(const std::string& jitter, double compute, int ranks, uint64_t seed) {
  return {
      Cluster::parse(fmt::format("compute={}us,jitter={}", std::llround(1e6 * compute), jitter)),
      ranks, seed};
}

ordered_json model(const ordered_json&) {
  ordered_json means;
  for (const Law& law : kLaws)
    for (const int n : kRanks)
      means[law.jitter].push_back(mean(slowest(n, kSteps, durations(law.jitter, 1, n, 1))));
  return means;
}

// Mean steps of each number of ranks, repeat by repeat, so that all see the same machine.
ordered_json measure(const ordered_json& p) {
  const int64_t repeats = p["repeats"], steps = p["steps"];
  const double seconds = p["seconds"];
  ordered_json took;
  for (int64_t repeat = 0; repeat < repeats; ++repeat)
    for (const int n : kMeasuredRanks) {
      const auto times = durations(p["jitter"], seconds, n, static_cast<uint64_t>(repeat));
      took[std::to_string(n)].push_back(mean(sleep_together(
          n, steps, [&](int rank, int64_t step) { return micro_batch(times, rank, step); })));
    }
  return took;
}

Experiment modelled() {
  return {.name = "waiting, modelled", .parameters = {{"steps", kSteps}}, .measure = model};
}
Experiment measured() {
  return {
      .name = "waiting, measured",
      .parameters = {{"jitter", kMeasuredLaw}, {"repeats", 8}, {"steps", 20}, {"seconds", 0.004}},
      .measure = measure,
      .company = Company::alone};
}

Needs ask(const Setting&) { return {{}, {modelled(), measured()}}; }

Outcome judge(const Setting&, Results& results) {
  Waiting laws;
  Chart chart{.title = "How long the slowest of N takes",
              .kind = ChartKind::line,
              .x = {"ranks", "", Scale::log},
              .y = {"mean step over a rank's mean micro-batch"}};
  const nlohmann::json& means = results.answer(modelled());
  for (const Law& law : kLaws) {
    laws.modelled.push_back(means[law.jitter]);
    laws.expected.emplace_back();
    Series series{.name = law.name, .y = laws.modelled.back()};
    for (const int n : kRanks) {
      series.x.push_back(n);
      laws.expected.back().push_back(law.expected(n));
    }
    chart.series.push_back(series);
  }
  const nlohmann::json& took = results.answer(measured());
  const std::vector<double> alone = took["1"];
  Series real{.name = fmt::format("measured, sleeping threads, {}", kMeasuredLaw)};
  std::vector<double> growth;
  for (const int n : kMeasuredRanks) {
    const std::vector<double> steps = took[std::to_string(n)];
    std::vector<double> over;
    for (size_t i = 0; i < steps.size(); ++i) over.push_back(steps[i] / mean(alone));
    const auto interval = statistics::mean_interval(statistics::spread_of(over), 0.95);
    real.x.push_back(n);
    real.y.push_back(mean(over));
    real.low.push_back(interval ? interval->low : NAN);
    real.high.push_back(interval ? interval->high : NAN);
    if (n == 8)
      for (size_t i = 0; i < steps.size(); ++i) growth.push_back(steps[i] / alone[i]);
  }
  chart.series.push_back(real);

  const Figure measured_growth =
      mean_figure("measured step of 8 ranks over that of one", "", growth);
  Outcome outcome{.verdict = judge_waiting(measured_growth, laws)};
  outcome.figures = {measured_growth};
  for (size_t i = 0; i < std::size(kLaws); ++i)
    for (const size_t n : {size_t{3}, size_t{6}})
      outcome.figures.push_back(
          {fmt::format("modelled step of {} ranks, {}", kRanks[n], kLaws[i].name), "",
           laws.modelled[i][n]});
  outcome.charts = {chart};
  outcome.takeaway =
      "Waiting grows with the number of ranks, but slowly where times spread little: like √(2 ln "
      "N) "
      "for a narrow bell, like ln N for an exponential tail, like a power of N only for heavy "
      "tails. Cut the tail before you cut the ranks.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B1c",
     .source = "document B, synchronous SGD",
     .statement = "The more cards, the longer a synchronous step waits for the slowest.",
     .done =
         "The mean of the slowest of N micro-batches over 4000 modelled steps, N = 1 to 64, for "
         "four laws of jitter, beside what order statistics expect; and 1 to 8 threads that "
         "really sleep for such times and then all-reduce, in 8 blocks of 20 steps each.",
     .rule = "Direction: reproduced where the measured step of 8 ranks is at least 1.10 times that "
             "of one (95 % interval), not below 1.02. Size, that is how the wait grows: reproduced "
             "where the modelled mean rises with every doubling of N under all laws and agrees "
             "with order statistics within 2 % (5 % for the heavy tail); else not.",
     .ask = ask,
     .judge = judge}};

}  // namespace

double expected_exponential(int n, double fraction) {
  double harmonic = 0;
  for (int k = 1; k <= n; ++k) harmonic += 1.0 / k;
  return 1 - fraction + fraction * harmonic;
}

// ∫ exp(σz - σ²/2) n φ(z) Φ(z)^(n-1) dz by the trapezium rule, which is exact to rounding for
// integrands that vanish at both ends with all derivatives.
double expected_lognormal(int n, double sigma) {
  constexpr double kStep = 0.01, kFar = 9;
  double sum = 0;
  for (double z = -kFar; z <= kFar; z += kStep) {
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    const double below = std::erfc(-z / std::sqrt(2.0)) / 2;
    sum += std::exp(sigma * z - sigma * sigma / 2) * n * density * std::pow(below, n - 1);
  }
  return sum * kStep;
}

// Of X = (α-1)/α · U^(-1/α): the largest of n has mean n·B(n, 1 - 1/α)·(α-1)/α.
double expected_pareto(int n, double alpha) {
  const double a = 1 - 1 / alpha;
  return a * n * std::exp(std::lgamma(n) + std::lgamma(a) - std::lgamma(n + a));
}

Verdict judge_waiting(const Figure& growth, const Waiting& laws) {
  double worst = 0, worst_heavy = 0;  // relative; the last law has the heavy tail
  bool rises = true;
  for (size_t law = 0; law < laws.modelled.size(); ++law)
    for (size_t i = 0; i < laws.modelled[law].size(); ++i) {
      const double off = std::abs(laws.modelled[law][i] / laws.expected[law][i] - 1);
      double& most = law + 1 == laws.modelled.size() ? worst_heavy : worst;
      most = std::max(most, std::isfinite(off) ? off : INFINITY);
      rises = rises && (i == 0 || laws.modelled[law][i] > laws.modelled[law][i - 1]);
    }
  const bool as_expected = rises && worst <= kTolerance && worst_heavy <= 2.5 * kTolerance;
  return {
      at_least(growth, 1.10, 1.02, Provenance::measured),
      Judgement{as_expected ? Finding::reproduced : Finding::not_reproduced, Provenance::modelled,
                fmt::format("modelled means {} with N and are within {} % of order statistics "
                            "({} % for the heavy tail)",
                            rises ? "rise" : "do not always rise", short_number(100 * worst),
                            short_number(100 * worst_heavy))}};
}

}  // namespace lockstep::apps

// A2e: "stochastic quantisation is unbiased" (implied). The same numbers are encoded and decoded
// again and again: their mean, and their variance against theory.
#include "apps/compare/claims/stochastic_rounding.h"

#include "apps/compare/verdict_rules.h"
#include "core/random.h"
#include "distributed/compress/compress_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kElements = 512, kTrials = 20'000, kSamples = 8;
constexpr double kRare = 10;  // events that the normal law needs

struct Code {
  const char* spec;
  double step;  // over the largest magnitude; 0: contrast only
  int bits;
};
constexpr Code kCodes[] = {
    {"qsgd:bits=1,block=512", 2, 1},         {"terngrad", 1, 2},
    {"qsgd:bits=2,block=512", 1, 2},         {"qsgd:bits=3,block=512", 1 / 3.0, 3},
    {"qsgd:bits=4,block=512", 1 / 7.0, 4},   {"qsgd:bits=6,block=512", 1 / 31.0, 6},
    {"qsgd:bits=8,block=512", 1 / 127.0, 8}, {"int8:block=512,round=stochastic", 1 / 127.0, 8}};
constexpr const char* kContrasts[] = {"int8:block=512,bits=4", "fp8", "sign", "topk:ratio=0.05"};

// As gradients are: normal, over magnitudes of several octaves.
std::vector<float> numbers() {
  const Random random(1, RandomStream::synthetic, 77);
  std::vector<float> x(kElements);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(1e-3 * random.normal(2 * i) * std::exp(random.normal(2 * i + 1)));
  return x;
}

ordered_json json_of(const CodeMoments& m) {
  return {{"element_sigmas", m.element_sigmas},
          {"along_sigmas", m.along_sigmas},
          {"variance_over_theory", m.variance_over_theory},
          {"relative_variance", m.relative_variance},
          {"relative_bias", m.relative_bias}};
}

CodeMoments moments_from(const nlohmann::json& json) {
  return {json["element_sigmas"], json["along_sigmas"], json["variance_over_theory"],
          json["relative_variance"], json["relative_bias"]};
}

ordered_json measure(const ordered_json& p) {
  return json_of(moments_of(p["code"], numbers(), p["trials"], p["step"]));
}

Experiment of(const char* code, double step) {
  return {.name = "moments of a code",
          .parameters = {{"code", code}, {"trials", step > 0 ? kTrials : kSamples}, {"step", step}},
          .measure = measure};
}

Needs ask(const Setting&) {
  Needs needs;
  for (const Code& code : kCodes) needs.experiments.push_back(of(code.spec, code.step));
  for (const char* code : kContrasts) needs.experiments.push_back(of(code, 0));
  return needs;
}

Outcome judge(const Setting&, Results& results) {
  Outcome outcome;
  std::vector<CodeMoments> all;
  Series measured{.name = "measured"}, theory{.name = "theory"};
  for (const Code& code : kCodes) {
    const CodeMoments m = moments_from(results.answer(of(code.spec, code.step)));
    all.push_back(m);
    outcome.figures.push_back({fmt::format("largest deviation of an element's mean, {}", code.spec),
                               "standard errors", m.element_sigmas});
    outcome.figures.push_back(
        {fmt::format("variance over theory, {}", code.spec), "", m.variance_over_theory});
    measured.x.push_back(code.bits);
    measured.y.push_back(m.relative_variance);
    measured.labels.emplace_back(code.spec);
    theory.x.push_back(code.bits);
    theory.y.push_back(m.relative_variance / m.variance_over_theory);
    theory.labels.emplace_back(code.spec);
  }
  Chart bias{.title = "What is lost for good: squared bias over squared norm",
             .kind = ChartKind::bar,
             .y = {"relative bias"},
             .series = {{.name = "codes that round to nearest, or leave out"}},
             .note = "Without error feedback. Codes that round at random have none."};
  for (const char* code : kContrasts) {
    const CodeMoments m = moments_from(results.answer(of(code, 0)));
    outcome.figures.push_back({fmt::format("relative bias, {}", code), "", m.relative_bias});
    bias.categories.emplace_back(code);
    bias.series[0].y.push_back(m.relative_bias);
  }
  outcome.verdict = judge_unbiased(all);
  outcome.charts = {{.title = "Variance that random rounding adds",
                     .kind = ChartKind::scatter,
                     .x = {"bits an element"},
                     .y = {"variance over squared norm", "", Scale::log},
                     .series = {measured, theory}},
                    bias};
  outcome.takeaway =
      "Random rounding is right on average, and pays with variance: about four times less with "
      "every bit. With few bits that variance is larger than the gradient itself; averaging over "
      "ranks divides it by their number, which it does not do for the bias of other codes.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "A2e",
     .source = "document A, compression (implied)",
     .statement = "Stochastic quantisation is unbiased.",
     .done =
         "512 numbers that spread as gradients do are encoded and decoded 20,000 times by every "
         "code that rounds at random; codes that do not, for contrast. A step of d between "
         "levels has the variance d²·f·(1 - f), f being how far up a number lies between two.",
     .rule =
         "Direction: reproduced where under every code each element's mean, and their sum along "
         "the gradient, are within 5 standard errors; else not. Size: reproduced where the "
         "variance of every code is that of theory within 5 %, else not.",
     .ask = ask,
     .judge = judge}};

}  // namespace

CodeMoments moments_of(const std::string& spec, const std::vector<float>& x, int64_t trials,
                       double step) {
  using namespace distributed;
  const auto code = make_compressor(CompressSpec::parse(spec));
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<int64_t> ends{n};
  ToEncode in{.pieces = {.ends = ends}, .values = x};
  std::vector<float> amplitudes(1);
  if (code->shares_amplitudes()) {
    code->amplitudes(in, amplitudes);
    in.amplitudes = amplitudes;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(code->max_bytes(in.pieces)));
  std::vector<float> decoded(x.size());
  std::vector<double> sum(x.size());
  CodeMoments m;
  double squares = 0, norm = 0, largest = 0;
  for (const float v : x) {
    norm += double{v} * double{v};
    largest = std::max(largest, std::abs(double{v}));
  }
  for (int64_t trial = 0; trial < trials; ++trial) {
    in.pieces.seed = static_cast<uint64_t>(trial);
    const Encoded encoded = code->encode(in, bytes);
    std::ranges::fill(decoded, 0.0f);
    code->decode_add(std::span(bytes).first(static_cast<size_t>(encoded.bytes.total())), in.pieces,
                     in.amplitudes, decoded);
    for (size_t i = 0; i < x.size(); ++i) {
      sum[i] += double{decoded[i]};
      const double off = double{decoded[i]} - double{x[i]};
      squares += off * off;
    }
  }
  const auto count = static_cast<double>(trials);
  const double distance = step * largest;
  double along = 0, along_variance = 0, theory = 0, bias = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = double{x[i]}, off = sum[i] / count - value;
    bias += off * off;
    if (step == 0) continue;
    // Levels are multiples of the step; those of an odd grid (one bit) lie half a step beside.
    const double place = (value + largest) / distance;
    const double f = place - std::floor(place), variance = distance * distance * f * (1 - f);
    theory += variance;
    along += value * off;
    along_variance += value * value * variance / count;
    if (count * f * (1 - f) >= kRare)
      m.element_sigmas = std::max(m.element_sigmas, std::abs(off) / std::sqrt(variance / count));
  }
  m.relative_variance = squares / count / norm;
  m.relative_bias = bias / norm;
  if (step > 0) {
    m.along_sigmas = std::abs(along) / std::sqrt(along_variance);
    m.variance_over_theory = squares / count / theory;
  }
  return m;
}

Verdict judge_unbiased(const std::vector<CodeMoments>& codes) {
  double sigmas = 0, off = 0;
  for (const CodeMoments& m : codes) {
    sigmas = std::fmax(sigmas, std::fmax(m.element_sigmas, m.along_sigmas));
    off = std::fmax(off, std::abs(m.variance_over_theory - 1));
    if (!std::isfinite(m.element_sigmas + m.along_sigmas)) sigmas = INFINITY;
    if (!std::isfinite(m.variance_over_theory)) off = INFINITY;
  }
  return {at_most({"largest deviation of a mean", "standard errors", sigmas}, 5, 5,
                  Provenance::measured),
          at_most({"largest deviation of a variance from theory", "%", 100 * off}, 5, 5,
                  Provenance::measured)};
}

}  // namespace lockstep::apps

// A4a: "FP16 gradients halve the traffic", and A4b: "with DDP and autocast the all-reduce is FP16
// by itself". Bytes are counted by what moves them, times are modelled.
#include "apps/compare/claims/fp16_traffic.h"

#include "apps/compare/claims/models.h"
#include "apps/compare/verdict_rules.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace lockstep::apps {
namespace {

constexpr int64_t kRanks = 4;
// For 137 kB of gradients and 2 ms of computing: from nothing hidden to all of it.
constexpr const char* kBandwidths[] = {"100Mbit", "300Mbit", "1Gbit", "3Gbit", "10Gbit"};
constexpr double kGbit[] = {0.1, 0.3, 1, 3, 10};

PerStep precision(const char* name) {
  return PerStep(tiny_gpt(kRanks, 1).with("--precision", name));
}
PerStep wire(const char* dtype) { return PerStep(tiny_gpt(kRanks, 1).with("--wire", dtype)); }
RunRequest timed(const char* dtype, const char* bandwidth) {
  return tiny_gpt(kRanks, 20)
      .with("--wire", dtype)
      .with("--backend", "virtual")
      .with("--cluster", fmt::format("compute=2ms,latency=1us,bandwidth={}", bandwidth));
}

Needs ask_halves(const Setting&) {
  Needs needs;
  for (const char* dtype : {"fp32", "fp16"}) {
    wire(dtype).ask(needs);
    for (const char* bandwidth : kBandwidths) needs.runs.push_back(timed(dtype, bandwidth));
  }
  return needs;
}

Outcome judge_halves(const Setting&, Results& results) {
  const double fp32 = wire("fp32").of(results, "wire_bytes"),
               fp16 = wire("fp16").of(results, "wire_bytes");
  Series time{.name = "modelled step time, fp16 over fp32"};
  for (size_t i = 0; i < std::size(kBandwidths); ++i) {
    time.x.push_back(kGbit[i]);
    time.y.push_back(results.result(timed("fp16", kBandwidths[i])).figure("virtual_s") /
                     results.result(timed("fp32", kBandwidths[i])).figure("virtual_s"));
  }
  Outcome outcome{.verdict = {judge_fp16_bytes(fp16 / fp32), judge_fp16_time(time.y.front())}};
  outcome.figures = {{"bytes a rank and step, fp32 wire", "kB", fp32 / 1e3},
                     {"bytes a rank and step, fp16 wire", "kB", fp16 / 1e3},
                     {"bytes, fp16 over fp32", "", fp16 / fp32}};
  for (size_t i = 0; i < time.x.size(); ++i)
    outcome.figures.push_back(
        {fmt::format("modelled step time at {}, fp16 over fp32", kBandwidths[i]), "", time.y[i]});
  outcome.charts = {{.title = "What half the bytes are worth",
                     .kind = ChartKind::line,
                     .x = {"bandwidth of a link", "Gbit/s", Scale::log},
                     .y = {"step time, fp16 over fp32"},
                     .series = {time},
                     .note = "Exchanges hide behind backward: with fast links there is nothing "
                             "left to save."}};
  outcome.takeaway =
      "Half the bytes always; half the time only where the network, not computing, sets the pace. "
      "Measure exposed communication before you pay with precision.";
  return outcome;
}

const RegisterClaim halves{
    {.id = "A4a",
     .source = "document A, mixed precision",
     .statement = "FP16 gradients halve the traffic.",
     .done = "4 ranks all-reduce in fp32 and in fp16; bytes are counted as they move, verdicts and "
             "losses that ranks exchange included. The same on modelled links of 0.1 to 10 Gbit/s "
             "with exchanges overlapping backward.",
     .rule = "Direction: bytes a step in fp16 over fp32 are reproduced in 0.50 ± 0.02, in part in "
             "0.50 ± 0.10. Size: where communication sets the pace (0.1 Gbit/s) the modelled step "
             "takes 0.50 ± 0.05 of the time, in part up to 0.8.",
     .ask = ask_halves,
     .judge = judge_halves}};

constexpr const char* kPrecisions[] = {"fp32", "amp-fp16", "amp-bf16", "half-fp16", "half-bf16"};

Needs ask_autocast(const Setting&) {
  Needs needs;
  for (const char* name : kPrecisions) precision(name).ask(needs);
  return needs;
}

Outcome judge_autocast(const Setting&, Results& results) {
  Outcome outcome;
  Series bytes{.name = "bytes a rank and step"};
  Chart chart{.title = "What crosses the wire by itself",
              .kind = ChartKind::bar,
              .y = {"bytes a rank and step", "kB"}};
  std::vector<double> kb;
  for (const char* name : kPrecisions) {
    kb.push_back(precision(name).of(results, "wire_bytes") / 1e3);
    outcome.figures.push_back({fmt::format("bytes a rank and step, {}", name), "kB", kb.back()});
    chart.categories.emplace_back(name);
  }
  bytes.y = kb;
  chart.series = {bytes};
  outcome.figures.push_back({"bytes, autocast over fp32", "", kb[1] / kb[0]});
  outcome.figures.push_back({"bytes, fp16 parameters over fp32", "", kb[3] / kb[0]});
  outcome.charts = {chart};
  outcome.verdict.direction = judge_autocast_bytes(kb[1] / kb[0]);
  outcome.takeaway =
      "Autocast computes in half precision, but its parameters and gradients stay fp32, and so "
      "does what is all-reduced (as in PyTorch 2.13). Ask for an fp16 wire, or hold parameters in "
      "half precision.";
  return outcome;
}

const RegisterClaim autocast{
    {.id = "A4b",
     .source = "document A, mixed precision",
     .statement = "With data parallelism and autocast the all-reduce is FP16 by itself.",
     .done = "4 ranks train with autocast (parameters and gradients fp32) and with parameters in "
             "half precision, nothing said about the wire; bytes are counted as they move.",
     .rule = "Bytes a step under autocast over those of fp32 training: reproduced in 0.50 ± 0.02, "
             "not reproduced outside 0.50 ± 0.10.",
     .ask = ask_autocast,
     .judge = judge_autocast}};

}  // namespace

Judgement judge_fp16_bytes(double ratio) {
  return within({"bytes, fp16 over fp32", "", ratio}, {0.48, 0.52}, {0.40, 0.60},
                Provenance::measured);
}

Judgement judge_fp16_time(double ratio) {
  return within({"modelled step time at 0.1 Gbit/s, fp16 over fp32", "", ratio}, {0.45, 0.55},
                {0.45, 0.80}, Provenance::modelled);
}

Judgement judge_autocast_bytes(double ratio) {
  return within({"bytes, autocast over fp32", "", ratio}, {0.48, 0.52}, {0.40, 0.60},
                Provenance::measured);
}

}  // namespace lockstep::apps

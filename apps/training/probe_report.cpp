#include "apps/training/probe_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lockstep::apps {
namespace {

using distributed::Fidelity;
using distributed::GradientProbe;
using distributed::Magnitudes;
using distributed::ProbeStage;
using nlohmann::ordered_json;

constexpr ProbeStage kStages[] = {ProbeStage::raw, ProbeStage::scaled, ProbeStage::wire,
                                  ProbeStage::reduced};
constexpr int kBias = 127;

// As the options of the command line have it.
std::string_view option_name(DType dtype) {
  return dtype == DType::f16 ? "fp16" : dtype == DType::bf16 ? "bf16" : "fp32";
}

// The first and one past the last power of two that occurs; both 0: none does.
std::pair<int, int> powers(const Magnitudes& m) {
  int first = 0, last = static_cast<int>(m.by_power.size());
  while (first < last && m.by_power[static_cast<size_t>(first)] == 0) ++first;
  while (last > first && m.by_power[static_cast<size_t>(last) - 1] == 0) --last;
  return first == last ? std::pair{0, 0} : std::pair{first, last};
}

ordered_json json_of(const Magnitudes& m) {
  const auto [first, last] = powers(m);
  return {
      {"dtype", option_name(m.dtype)},
      {"elements", m.total},
      {"zeros", m.share(m.zeros)},
      {"subnormals", m.share(m.subnormals)},
      {"infinities", m.share(m.infinities)},
      {"nans", m.share(m.nans)},
      {"log2",
       {{"from", first - kBias},
        {"counts", std::vector<int64_t>(m.by_power.begin() + first, m.by_power.begin() + last)}}}};
}

template <class At>
ordered_json stages_json(At at) {
  ordered_json json;
  for (const ProbeStage stage : kStages) json[std::string(name_of(stage))] = json_of(at(stage));
  return json;
}

struct Loss {
  int slice = 0;
  int64_t lost = 0, total = 0;
  double share() const {
    return total == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(total);
  }
};

// Gradients of each parameter that were not zero after backward and are zero on the wire; the worst
// first. (What a narrow backward itself turned into zeros is among the zeros of every stage.)
std::vector<Loss> losses(const GradientProbe& probe, const optim::FlatParams& params) {
  std::vector<Loss> all;
  for (int i = 0; i < static_cast<int>(params.slices().size()); ++i) {
    const Magnitudes scaled = probe.at(ProbeStage::scaled, i), wire = probe.at(ProbeStage::wire, i);
    all.push_back({i, std::max<int64_t>(wire.zeros - scaled.zeros, 0), scaled.total});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Loss& a, const Loss& b) { return a.share() > b.share(); });
  return all;
}

// One character for every two powers of two: the taller, the more values.
std::string bars(const Magnitudes& m, int first, int last) {
  constexpr const char* kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<int64_t> sums;
  for (int k = first; k < last; k += 2)
    sums.push_back(m.by_power[static_cast<size_t>(k)] +
                   (k + 1 < last ? m.by_power[static_cast<size_t>(k) + 1] : 0));
  const int64_t top = sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
  std::string text;
  for (const int64_t sum : sums)
    text += kBars[top == 0 || sum == 0 ? 0 : 1 + (7 * sum + top / 2) / top];
  return text;
}

double percent(const Magnitudes& m, int64_t count) { return 100 * m.share(count); }

ordered_json fidelity_json(const Fidelity& f, int ranks) {
  return {{"begin", f.begin},
          {"elements", f.numel},
          {"relative_error", f.relative_error},
          {"cosine", f.cosine},
          {"share", f.sent_share},
          {"overlap", f.overlap(ranks)},
          {"oldest_unsent", f.oldest_unsent}};
}

}  // namespace

ordered_json probe_json(const GradientProbe& probe, const optim::FlatParams& params) {
  ordered_json parameters = ordered_json::object();
  for (auto i = static_cast<int>(params.slices().size()) - 1; i >= 0; --i)  // as constructed
    parameters[params.slices()[static_cast<size_t>(i)].name] =
        stages_json([&](ProbeStage stage) { return probe.at(stage, i); });
  ordered_json sent = fidelity_json(probe.fidelity().all(), probe.ranks());
  for (const Fidelity& bucket : probe.fidelity().by_range())
    sent["buckets"].push_back(fidelity_json(bucket, probe.ranks()));
  return {{"overall", stages_json([&](ProbeStage stage) { return probe.total(stage); })},
          {"sent", std::move(sent)},
          {"parameters", std::move(parameters)}};
}

std::string probe_text(const GradientProbe& probe, const optim::FlatParams& params) {
  Magnitudes totals[distributed::kProbeStages];
  int first = kBias, last = 0;
  for (const ProbeStage stage : kStages) {
    Magnitudes& m = totals[static_cast<int>(stage)] = probe.total(stage);
    const auto [begin, end] = powers(m);
    if (begin < end) first = std::min(first, begin), last = std::max(last, end);
  }
  if (last <= first) first = last = kBias;
  first -= (first - kBias) & 1;  // columns begin at even powers
  std::string text =
      fmt::format("{:<8} {:<5}{:>9}{:>11}{:>9}   log2 of magnitudes {} … {}\n", "stage", "dtype",
                  "zero", "subnormal", "inf/nan", first - kBias, last - kBias);
  for (const ProbeStage stage : kStages) {
    const Magnitudes& m = totals[static_cast<int>(stage)];
    if (m.total == 0) {  // --sync powersgd, say
      text +=
          fmt::format("{:<8} no gradients: the strategy sends something else\n", name_of(stage));
      continue;
    }
    text += fmt::format("{:<8} {:<5}{:>7.2f} %{:>9.2f} %{:>7.2f} %   {}\n", name_of(stage),
                        option_name(m.dtype), percent(m, m.zeros), percent(m, m.subnormals),
                        percent(m, m.infinities + m.nans), bars(m, first, last));
  }
  if (const Fidelity sent = probe.fidelity().all(); sent.relative_error > 0) {
    text += fmt::format("  as sent: relative error {:.3g}, cosine to the gradient {:.4f}",
                        sent.relative_error, sent.cosine);
    if (sent.sent_share < 1)
      text += fmt::format(
          "; {:.3g} % of elements, of which ranks have {:.3g} % in common; one has waited for {} "
          "probed steps",
          100 * sent.sent_share, 100 * sent.overlap(probe.ranks()), sent.oldest_unsent);
    text += '\n';
  }
  const std::vector<Loss> worst = losses(probe, params);
  for (size_t i = 0; i < worst.size() && i < 5 && worst[i].lost > 0; ++i)
    text += fmt::format("  {}: {} of {} gradients ({:.1f} %) became zero on the wire\n",
                        params.slices()[static_cast<size_t>(worst[i].slice)].name, worst[i].lost,
                        worst[i].total, 100 * worst[i].share());
  return text;
}

std::string probe_line(const GradientProbe& probe, const optim::FlatParams& params) {
  std::string text = "zero gradients:";
  for (const ProbeStage stage : kStages) {
    const Magnitudes m = probe.total(stage);
    if (m.total == 0) continue;  // the strategy sends something else
    text += fmt::format("{} {} {:.2f} %", stage == ProbeStage::raw ? "" : ",", name_of(stage),
                        percent(m, m.zeros));
  }
  for (const ProbeStage stage : {ProbeStage::scaled, ProbeStage::wire, ProbeStage::reduced}) {
    const Magnitudes m = probe.total(stage);
    if (m.infinities + m.nans == 0) continue;
    text +=
        fmt::format("; not finite: {} {:.2g} %", name_of(stage), percent(m, m.infinities + m.nans));
    break;  // and from there on
  }
  const std::vector<Loss> worst = losses(probe, params);
  if (!worst.empty() && worst.front().lost > 0)
    text += fmt::format("; most lost on the wire: {} ({:.1f} %)",
                        params.slices()[static_cast<size_t>(worst.front().slice)].name,
                        100 * worst.front().share());
  return text;
}

}  // namespace lockstep::apps

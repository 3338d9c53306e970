#include "apps/training/precision_options.h"

#include "apps/cli/parse.h"
#include "core/check.h"
#include "core/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::apps {
namespace {

struct Preset {
  const char *name, *compute, *buffers, *what;
};
constexpr std::array<Preset, 5> kPresets = {{
    {"fp32", "fp32", "fp32", "everything in fp32 (the default)"},
    {"amp-fp16", "fp16", "fp32", "products in fp16; parameters, gradients and wire in fp32"},
    {"amp-bf16", "bf16", "fp32", "products in bf16; parameters, gradients and wire in fp32"},
    {"half-fp16", "fp16", "fp16", "all in fp16, with an fp32 master copy in the optimiser"},
    {"half-bf16", "bf16", "bf16", "all in bf16, with an fp32 master copy in the optimiser"},
}};

DType dtype_of_name(const std::string& name) {
  return name == "fp16" ? DType::f16 : name == "bf16" ? DType::bf16 : DType::f32;
}

const Preset& preset_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return preset;
    names.emplace_back(preset.name);
  }
  const std::string best = name == "fp16" || name == "bf16" ? "amp-" + name : closest(name, names);
  throw UsageError(fmt::format("--precision: expected {}, got '{}'{}", fmt::join(names, ", "), name,
                               best.empty() ? "" : fmt::format("; did you mean {}?", best)));
}

// "none", "dynamic:start=…,interval=…", or a number. Without scaling the first bad step is a
// failure.
optim::GradScalerOptions parse_scale(const std::string& text) {
  const Spec spec(text);
  if (spec.name() == "none") {
    spec.expect_keys({});
    return {.scale = 1, .dynamic = false, .max_skips = 1};
  }
  optim::GradScalerOptions options;
  double scale = options.scale;
  if (spec.name() == "dynamic") {
    spec.expect_keys({"start", "interval"});
    options.interval = spec.integer("interval", options.interval, {.min = 1});
    scale = spec.number("start", scale, {.min = options.min, .max = options.max});
  } else {
    spec.expect_keys({});
    const auto number = parse_number(spec.name());
    check(number.has_value() && *number >= options.min && *number <= options.max,
          "--scale: expected auto, none, dynamic or a power of two from 2^{} to 2^{}, got '{}'",
          std::log2(options.min), std::log2(options.max), text);
    scale = *number;
    options.dynamic = false;
  }
  const double nearest = std::exp2(std::round(std::log2(scale)));
  check(scale == nearest, "--scale {}: expected a power of two (exact to undo), got {}; try {}",
        text, scale, nearest);
  options.scale = scale;
  return options;
}

}  // namespace

std::string precision_help() {
  std::string text;
  for (const Preset& preset : kPresets) text += fmt::format("{:<14}{}\n", preset.name, preset.what);
  return text +
         "\nEach knob can be set apart:\n"
         "--compute       what matrix products and attention multiply in; sums are fp32\n"
         "--params        what parameters are stored in; narrow ones have an fp32 master\n"
         "                copy in the optimiser unless --master off\n"
         "--grads         what every backward's gradient of a parameter is rounded to\n"
         "--accumulate-in what micro-batches are added in: grads (that dtype) or fp32;\n"
         "                auto: fp32 if there are several\n"
         "--wire          what gradients travel in between ranks (as --grads unless given)\n"
         "--reduce-in     what sums over ranks are made in: fp32, or the wire's own dtype\n"
         "--divide        where sums on a narrow wire are divided: none, before the wire,\n"
         "                after the sum, split (half each); auto: after with fp16, which loses\n"
         "                nothing, split where sums are fp16, too, else none\n";
}

std::string scale_help() {
  return "auto          dynamic where anything is fp16, else none (the default)\n"
         "none          no scale; a gradient that is not finite ends the run\n"
         "1024          any power of two, fixed; a bad step is skipped on all ranks\n"
         "dynamic       starts at 65536, halves after a skipped step, doubles after 2000 good\n"
         "              ones in a row; dynamic:start=1024,interval=200\n"
         "Fifty skipped steps in a row end the run.\n";
}

void PrecisionOptions::declare(OptionTable& t) {
  const std::vector<std::string> dtypes{"fp32", "fp16", "bf16"};
  t.group("precision");
  t.text("--precision", precision, "NAME",
         "fp32, amp-fp16, amp-bf16, half-fp16, half-bf16; --precision help");
  t.choice("--compute", compute, dtypes, "dtype of products, else the preset's");
  t.choice("--params", params, dtypes, "of parameters, likewise");
  t.choice("--grads", grads, dtypes, "of gradients, likewise");
  t.choice("--accumulate-in", accumulate_in, {"auto", "grads", "fp32"},
           "what micro-batches are added in");
  t.choice("--wire", wire, dtypes, "of gradients between ranks, else as --grads");
  t.choice("--reduce-in", reduce_in, {"fp32", "wire"}, "dtype of sums over ranks");
  t.choice("--divide", divide, {"auto", "none", "before", "after", "split"},
           "where sums on the wire are divided");
  t.on_off("--master", master, "fp32 copy of narrow parameters in the optimiser");
  t.text("--scale", scale, "SPEC", "of the loss: auto, none, 1024, dynamic; --scale help");
  t.choice("--probe", probe, {"none", "gradients"}, "what low precision destroys");
  t.integer("--probe-every", probe_every, {1, 1'000'000'000'000}, "steps between probes");
  t.lists("--precision", precision_help);
  t.lists("--scale", scale_help);
}

bool PrecisionOptions::is_name(const std::string& precision) {
  return std::any_of(kPresets.begin(), kPresets.end(),
                     [&](const Preset& preset) { return precision == preset.name; });
}

PrecisionOptions PrecisionOptions::named(const std::string& precision) {
  const Preset& preset = preset_named(precision);
  PrecisionOptions options;
  options.precision = preset.name;
  options.compute = preset.compute;
  options.params = options.grads = options.wire = preset.buffers;
  options.settle(1);
  return options;
}

// What follows from the dtypes.
void PrecisionOptions::settle(int64_t micro_batches) {
  if (accumulate_in == "auto") accumulate_in = micro_batches > 1 ? "fp32" : "grads";
  // fp16 parameters have fp16 gradients in the graph, whatever the products are made in.
  if (scale == "auto")
    scale = compute == "fp16" || params == "fp16" || grads == "fp16" || wire == "fp16" ? "dynamic"
                                                                                       : "none";
}

void PrecisionOptions::resolve(const OptionTable& given, int64_t micro_batches) {
  const PrecisionOptions preset = named(precision);
  if (!given.given("--compute")) compute = preset.compute;
  if (!given.given("--params")) params = preset.params;
  if (!given.given("--grads")) grads = preset.grads;
  if (!given.given("--wire")) wire = grads;
  settle(micro_batches);
  check(reduce_in == "fp32" || wire != "fp32",
        "--reduce-in wire: expected a --wire of fp16 or bf16, got fp32, where both are the same");
  check(divide == "auto" || divide == "none" || wire != "fp32" ||
            buffers().accumulate_in != DType::f32,
        "--divide {}: expected a --wire of fp16 or bf16, got fp32", divide);
  check(!given.given("--probe-every") || probing(), "--probe-every {}: expected --probe gradients",
        probe_every);
  try {
    parse_scale(scale);
  } catch (const UsageError& e) {
    const std::string_view what = e.what();
    throw UsageError(what.starts_with("--scale") ? std::string(what)
                                                 : fmt::format("--scale: {}", what));
  }
}

DType PrecisionOptions::compute_dtype() const { return dtype_of_name(compute); }

optim::Precision PrecisionOptions::buffers() const {
  return {.params = dtype_of_name(params),
          .grads = dtype_of_name(grads),
          .accumulate_in = accumulate_in == "fp32" ? DType::f32 : dtype_of_name(grads)};
}

distributed::ExchangeOptions PrecisionOptions::exchange() const {
  using distributed::Divide;
  return {
      .wire = dtype_of_name(wire),
      .reduce_in = reduce_in == "wire" ? distributed::ReduceIn::wire : distributed::ReduceIn::f32,
      .divide = divide == "none"     ? Divide::none
                : divide == "before" ? Divide::before
                : divide == "after"  ? Divide::after
                : divide == "split"  ? Divide::split
                                     : Divide::automatic};
}

optim::GradScalerOptions PrecisionOptions::scaler(double nominal_weight) const {
  optim::GradScalerOptions options = parse_scale(scale);
  options.nominal_weight = nominal_weight;
  return options;
}

}  // namespace lockstep::apps

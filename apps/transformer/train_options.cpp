#include "apps/transformer/train_options.h"

#include "apps/report/machine.h"
#include "apps/transformer/language_data.h"
#include "core/check.h"
#include "core/parallel.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

const RunOptions::Words kWords{.samples = "windows",
                               .seeded = "of weights, data order and dropout"};

std::string divisors(int64_t n) {
  std::string text;
  int found = 0;
  for (int64_t d = 1; d <= n && found < 5; ++d)
    if (n % d == 0) text += fmt::format("{}{}", found++ == 0 ? "" : ", ", d);
  return text;
}

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

}  // namespace

void TrainOptions::declare(OptionTable& t) {
  t.group("model");
  t.integer("--layers", layers, {1, 10000}, "transformer blocks");
  t.integer("--heads", heads, {1, 10000}, "attention heads; a divisor of the width");
  t.integer("--width", width, {1, kMaxSize}, "features of a token");
  t.integer("--context", context, {1, kMaxSize}, "tokens the model looks back");
  t.on_off("--bias", bias, "biases in linear layers and norms");
  t.choice("--gelu", gelu, {"exact", "tanh"}, "form of the GELU");
  t.number("--dropout", dropout, {0, 0.99, ""}, "rate after the embedding and each branch");
  t.group("data");
  t.text("--text", text, "FILE",
         "text to learn, or synthetic:order=…,letters=…; --text help (required)");
  t.choice("--vocab", vocab, {"byte", "char"}, "what a token is");
  t.number("--val-fraction", val_fraction, {0, 0.9, ""}, "tail of the text kept for validation");
  t.integer("--val-tokens", val_tokens, {0, kMaxSteps},
            "evaluate on the tail's last N tokens, 0: all");
  t.integer("--eval-every", eval_every, {0, kMaxSteps},
            "steps between evaluations, 0: only at the end");
  declare_training(t, kWords);
  declare_moments(t);
  precision.declare(t);
  declare_ranks(t);
  declare_on_divergence(t);
  declare_output(t);
  t.lists("--text", text_help);
}

void TrainOptions::resolve(const OptionTable& given) {
  check(!text.empty(),
        "--text: expected a file, got nothing; synthetic:order=2 trains on generated text");
  check(width % heads == 0, "--heads {} does not divide --width {}; try {}, …", heads, width,
        divisors(width));
  RunOptions::resolve(given, kWords);
}

void TrainOptions::check_memory(int64_t vocabulary) const {
  const GptConfig config = model(vocabulary);
  const auto p = static_cast<double>(parameter_count(config));
  const optim::Precision dtypes = precision.buffers();
  const double moments = optimizer.rfind("sgd", 0) == 0 ? 0 : 2;
  const double master = precision.master && dtypes.params != DType::f32 ? 1 : 0;
  const double state = static_cast<double>(size_of(dtypes.params) + size_of(dtypes.accumulate_in)) +
                       4 * (moments + master);
  const auto tokens = static_cast<double>(batch) * static_cast<double>(context);
  // At the least: what backward needs from a block, and the logits with their gradient.
  const double activations =
      tokens * (10.0 * static_cast<double>(layers) * static_cast<double>(width) +
                2.0 * static_cast<double>(vocabulary));
  const double narrow = static_cast<double>(size_of(precision.compute_dtype()));
  // On a modelled cluster ranks take turns.
  const auto at_once = static_cast<double>(
      on_virtual_cluster() ? std::min<int64_t>(ranks, available_cores()) : ranks);
  const double need = static_cast<double>(ranks) * p * state + at_once * narrow * activations;
  const auto have = static_cast<double>(memory_bytes());
  if (need > have)
    throw SystemError(
        Fault::device,
        fmt::format(
            "out of memory: {:.4g} parameters and {:.4g} tokens a micro-batch on {} rank(s) need "
            "at least {}; expected at most {}; lower --layers, --width, --batch or --context",
            p, tokens, ranks, gib(need), gib(have)));
}

GptConfig TrainOptions::model(int64_t vocabulary) const {
  return {.vocab = vocabulary,
          .layers = layers,
          .heads = heads,
          .width = width,
          .context = context,
          .bias = bias,
          .gelu = gelu == "exact" ? kernel::Gelu::exact : kernel::Gelu::tanh,
          .dropout = static_cast<float>(dropout)};
}

}  // namespace lockstep::apps

#include "apps/transformer/language_data.h"

#include "apps/report/machine.h"
#include "core/check.h"
#include "core/file.h"
#include "core/spec.h"
#include "data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr std::string_view kSynthetic = "synthetic";

// A character, its token, and the token again while training text and validation part.
constexpr int64_t kBytesPerCharacter = 1 + 2 * int64_t{sizeof(int32_t)};

struct Source {
  std::string text;
  std::optional<double> best_loss;
};

Source read_source(const LanguageDataOptions& options) {
  const bool synthetic = options.text == kSynthetic || options.text.rfind("synthetic:", 0) == 0;
  if (!synthetic)
    return {data::read_text(options.text, memory_bytes() / kBytesPerCharacter), std::nullopt};
  const Spec spec(options.text);
  spec.expect_keys({"order", "letters", "length", "seed"});
  const auto seed = static_cast<uint64_t>(spec.integer("seed", 1, {.min = 0}));
  const data::MarkovSource source(
      {.order = static_cast<int>(spec.integer("order", 2, {.min = 1, .max = 4})),
       .letters = static_cast<int>(spec.integer("letters", 8, {.min = 2, .max = 26})),
       .seed = seed});
  const int64_t length = spec.integer("length", 200'000, {.min = 1, .max = 1'000'000'000});
  return {source.text(length, seed), source.best_loss(options.context)};
}

std::shared_ptr<const data::TokenWindows> windows(std::vector<int32_t> tokens, int64_t context) {
  return std::make_shared<const data::TokenWindows>(std::move(tokens), context);
}

}  // namespace

LanguageData load_language_data(const LanguageDataOptions& options) {
  const Source source = read_source(options);
  LanguageData out;
  out.best_loss = source.best_loss;
  out.tokenizer =
      options.vocab == "char" ? data::char_tokenizer(source.text) : data::byte_tokenizer();
  std::vector<int32_t> tokens = out.tokenizer->encode(source.text);
  const auto n = static_cast<int64_t>(tokens.size()), window = options.context + 1;
  const auto too_short = [&](int64_t expected) {
    return SystemError(
        Fault::file,
        fmt::format("{} is too short; expected at least {} tokens for --context {}{}, got {}",
                    printable(options.text), expected, options.context,
                    expected > window ? " and a validation tail" : "", n));
  };
  if (n < window) throw too_short(window);
  if (options.val_fraction > 0) {
    int64_t tail = n - static_cast<int64_t>((1 - options.val_fraction) * static_cast<double>(n));
    tail = std::max(tail, window);
    if (n - tail < window) throw too_short(2 * window);
    int64_t evaluated =
        options.val_tokens > 0 ? std::clamp(options.val_tokens, window, tail) : tail;
    evaluated = (evaluated - 1) / options.context * options.context + 1;  // whole windows
    out.validation = windows({tokens.end() - evaluated, tokens.end()}, options.context);
    tokens.resize(static_cast<size_t>(n - tail));
  }
  out.training = windows(std::move(tokens), options.context);
  return out;
}

std::string text_help() {
  return "FILE          any text; a byte-order mark in front is left out\n"
         "synthetic     a random text whose best possible loss is known: a Markov source\n"
         "  order         letters that the next one depends on, 1..4 (2)\n"
         "  letters       size of the alphabet, 2..26 (8)\n"
         "  length        characters (200000)\n"
         "  seed          of source and text (1)\n";
}

}  // namespace lockstep::apps

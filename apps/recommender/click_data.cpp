#include "apps/recommender/click_data.h"

#include "apps/training/data_kinds.h"
#include "core/check.h"
#include "core/spec.h"
#include "data/click_file.h"
#include "data/interactions.h"
#include "data/synthetic_clicks.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr int64_t kHashRows = 100'000;  // of each table of a click log

// What follows the kind's name and a colon.
std::string after_name(const std::string& spec) {
  const size_t colon = spec.find(':');
  return colon == std::string::npos ? "" : spec.substr(colon + 1);
}

std::string file_of(const ClickDataOptions& o) {
  const std::string file = after_name(o.spec);
  check(!file.empty(), "--data: expected {}:FILE, got '{}'", click_data_kind(o.spec), o.spec);
  return file;
}

// That the best possible is found from: many, but of very many rows each as many as take a moment.
int64_t samples_for_best(const data::ClickSchema& schema) {
  constexpr int64_t kRows = int64_t{1} << 24, kLeast = 1024, kMost = int64_t{1} << 17;
  return std::clamp(kRows / (schema.tables() * (1 + schema.largest_bag) / 2 + schema.dense), kLeast,
                    kMost);
}

ClickData synthetic(const ClickDataOptions& o) {
  Spec spec(o.spec);
  spec.name_number("zipf");
  spec.expect_keys({"zipf", "dense", "largest_bag", "weighted", "samples", "seed", "bias",
                    "dense_spread", "row_spread", "pair_spread"});
  const data::SyntheticClicks::Options by_default;
  const NumberRange spread{.min = 0, .max = 100};
  data::SyntheticClicks::Options s{
      .tables = o.tables,
      .rows = o.rows,
      .dense = spec.integer("dense", by_default.dense, {.min = 0, .max = 4096}),
      .zipf = spec.number("zipf", by_default.zipf, {.min = 0, .max = 4}),
      .largest_bag = spec.integer("largest_bag", by_default.largest_bag, {.min = 1, .max = 256}),
      .weighted = spec.flag("weighted", by_default.weighted),
      .seed = static_cast<uint64_t>(spec.integer("seed", 0, {.min = 0})),
      .samples = spec.integer("samples", by_default.samples, {.min = 1}),
      .bias = spec.number("bias", by_default.bias),
      .dense_spread = spec.number("dense_spread", by_default.dense_spread, spread),
      .row_spread = spec.number("row_spread", by_default.row_spread, spread),
      .pair_spread = spec.number("pair_spread", by_default.pair_spread, spread)};
  if (o.val_samples > 0) s.held_out = o.val_samples;
  const auto clicks = std::make_shared<const data::SyntheticClicks>(s);
  return {.source = clicks,
          .find_best = [clicks] { return clicks->best(samples_for_best(clicks->schema())); }};
}

ClickData criteo(const ClickDataOptions& o) {
  return {.source = std::make_shared<const data::ClickFile>(
              data::ClickFile::Options{.path = file_of(o),
                                       .hash_rows = o.hash_rows > 0 ? o.hash_rows : kHashRows,
                                       .categories = o.categories,
                                       .bad_rows = o.bad_rows,
                                       .held_out = o.val_fraction}),
          .find_best = nullptr};
}

ClickData interactions(const ClickDataOptions& o) {
  return {.source = std::make_shared<const data::Interactions>(
              data::Interactions::Options{.path = file_of(o),
                                          .negatives = o.negatives,
                                          .hash_rows = o.hash_rows,
                                          .bad_rows = o.bad_rows,
                                          .held_out = o.val_fraction}),
          .find_best = nullptr};
}

using Kind = DataKind<ClickData, ClickDataOptions>;
constexpr Kind kKinds[] = {
    {"synthetic",
     "synthetic          clicks of a known teacher, so that the best possible AUC is known; sized\n"
     "                   by --tables and --rows\n"
     "  zipf             exponent of the rows' frequencies (1.2)\n"
     "  dense            dense features of a sample (13)\n"
     "  largest_bag      bags have 1 up to so many rows (1)\n"
     "  weighted         rows of bags have weights, on|off (off)\n"
     "  samples          of an epoch (2^40: nothing comes twice)\n"
     "  seed             of teacher and samples (0)\n"
     "  bias             of the teacher's logit (-1)\n"
     "  dense_spread row_spread pair_spread\n"
     "                   standard deviations of the parts of the logit (1, 1.4, 0.5)\n",
     synthetic},
    {"criteo",
     "criteo:FILE        a click log: label, dense features, categories, TAB or comma between\n"
     "                   them; other numbers of columns under a header label,I1,…,C1,…;\n"
     "                   --hash-rows rows a table, 0: 100000\n",
     criteo},
    {"interactions",
     "interactions:FILE  pairs of user and item, TAB between them, with --negatives items drawn\n"
     "                   for each; further columns are left alone; a first line that begins\n"
     "                   with user or user_id and a TAB is a header; --hash-rows 0: a row for\n"
     "                   each user and item\n",
     interactions},
};

const Kind& kind_of(const std::string& spec) {
  return data_kind<Kind>(kKinds, spec, "synthetic, criteo:FILE or interactions:FILE");
}

}  // namespace

std::string click_data_kind(const std::string& spec) { return kind_of(spec).name; }

ClickData load_click_data(const ClickDataOptions& options) {
  return kind_of(options.spec).load(options);
}

std::string click_data_help() { return data_kinds_help<Kind>(kKinds); }

}  // namespace lockstep::apps

#include "apps/recommender/recommender_options.h"

#include "apps/report/machine.h"
#include "apps/training/registries.h"
#include "core/check.h"
#include "core/spec.h"
#include "distributed/tables/table_sync.h"
#include "optim/table_memory.h"

#include <string_view>
#include <utility>
#include <algorithm>

namespace lockstep::apps {
namespace {

// Of all layers, weights and biases.
double parameters_of(int64_t inputs, const std::vector<int64_t>& hidden, int64_t outputs) {
  auto before = static_cast<double>(inputs), all = 0.0;
  for (size_t i = 0; i <= hidden.size(); ++i) {
    const auto width = static_cast<double>(i < hidden.size() ? hidden[i] : outputs);
    all += (before + 1) * width;
    before = width;
  }
  return all;
}

const RunOptions::Words kWords{.samples = "samples", .seeded = "of weights and data order"};

// Options that are about some kinds of data only: others would leave them unheeded.
constexpr std::pair<const char*, std::string_view> kDataOptions[] = {
    {"--tables", "synthetic"},
    {"--rows", "synthetic"},
    {"--categories", "criteo"},
    {"--negatives", "interactions"},
    {"--hash-rows", "criteo or interactions"},
    {"--bad-rows", "criteo or interactions"},
    {"--val-fraction", "criteo or interactions"},
};

}  // namespace

RecommenderOptions::RecommenderOptions() {
  batch = 512;
  steps = 800;
}

void RecommenderOptions::declare(OptionTable& t) {
  t.group("model");
  t.integer("--tables", tables, {1, 4096}, "embedding tables; of synthetic data");
  t.integer("--rows", rows, {1, INT32_MAX}, "rows of each; of synthetic data");
  t.integer("--dim", dim, {1, 4096}, "width of a row");
  t.integers("--bottom", bottom, {1, kMaxSize}, "hidden widths of the MLP of dense features");
  t.integers("--top", top, {1, kMaxSize}, "hidden widths of the MLP of interactions");
  t.choice("--bag", bag, {"auto", "sum", "mean", "weighted"},
           "of a bag's rows; auto: weighted if data is");
  t.group("data");
  t.text("--data", data, "SPEC", "synthetic, criteo:FILE or interactions:FILE; --data help");
  t.integer("--hash-rows", hash_rows, {0, INT32_MAX},
            "rows a file's categories are hashed to; --data help");
  t.integer("--negatives", negatives, {0, 1000}, "items drawn for a pair of interactions");
  t.choice("--categories", categories, {"hex", "text", "rows"},
           "of criteo files: hexadecimal, any text, or row numbers");
  t.choice("--bad-rows", bad_rows, {"stop", "skip"}, "what a malformed line of a file does");
  t.number("--val-fraction", val_fraction, {0, 0.9, ""}, "of a file's lines, kept for validation");
  t.integer("--val-samples", val_samples, {0, 1'000'000'000},
            "evaluate on the last N held-out samples, 0: all");
  t.integer("--eval-every", eval_every, {0, kMaxSteps},
            "steps between evaluations, 0: only at the end");
  declare_training(t, kWords);
  t.text("--table-optimizer", table_optimizer, "SPEC",
         "of the tables, name:key=value,…; --table-optimizer help");
  t.number("--table-lr", table_lr, {0, 1e38, ""}, "learning rate of the tables");
  precision.declare(t);
  declare_ranks(t);
  declare_output(t);
  t.lists("--data", click_data_help);
  t.lists("--table-optimizer", table_optimizer_help);
}

void RecommenderOptions::resolve(const OptionTable& given) {
  const std::string kind = click_data_kind(data);
  for (const auto& [name, kinds] : kDataOptions)
    check(!given.given(name) || kinds.find(kind) != std::string_view::npos,
          "{}: expected --data {} beside it, got {}", name, kinds, data);
  RunOptions::resolve(given, kWords);
  check(teach != "reduce-running",
        "--teach reduce-running: of dense gradients only; expected none, sum or no-division");
  check(uneven != "stop" || bad_rows != "skip" || kind != "criteo",
        "--uneven stop: under --bad-rows skip a rank whose rows were all malformed looks like one "
        "that ran out of data; expected active or initial");
  table_strategy_of(sync);
  // A service clips by the norm of what is pushed to it, of which tables on the ranks are no part.
  check(clip == 0 || distributed::make_strategy(sync)->sums_gradients() ||
            !distributed::make_table_sync(table_strategy_of(sync))->together(),
        "--clip: under --sync {} MLPs and tables would be clipped by different norms; expected "
        "--sync allreduce, which makes the same steps",
        sync);
  check_table_optimizer(table_optimizer, table_lr);
}

void RecommenderOptions::resolve(const data::ClickSource& source) {
  const bool weighted = source.schema().weighted;
  if (bag == "auto") bag = weighted ? "weighted" : "sum";
  check(weighted || bag != "weighted",
        "--bag weighted: expected data with weights, such as --data synthetic:weighted=on, got {}",
        data);
  check(global_batch <= source.samples(),
        "--batch {} x --ranks {} x --accumulate {} = {} samples a step; expected at most the {} of "
        "the training data; lower --batch",
        batch, ranks, accumulate, global_batch, source.samples());
}

void RecommenderOptions::check_memory(const data::ClickSchema& schema) const {
  const auto strategy = distributed::make_table_sync(table_strategy_of(sync));
  // Where ranks step apart, updates of each row are counted.
  optim::expect_tables_fit(
      schema.table_rows, dim, table_optimizer, memory_bytes(),
      {.copies = strategy->copies(ranks), .count_bytes = strategy->together() ? 0 : 4});
  int64_t all_rows = 0;
  for (const int64_t n : schema.table_rows) all_rows = checked_add(all_rows, n);
  check(all_rows <= INT32_MAX, "{} tables with {} rows in all; expected at most {}",
        schema.tables(), all_rows, INT32_MAX);
  // At the least: parameters and gradients of the MLPs, and what backward needs of a micro-batch.
  const int64_t vectors = schema.tables() + 1, products = vectors * (vectors - 1) / 2;
  const double p = parameters_of(std::max<int64_t>(schema.dense, 1), bottom, dim) +
                   parameters_of(dim + products, top, 1);
  const double values = static_cast<double>(batch) * static_cast<double>(vectors * dim + products);
  const double need = static_cast<double>(ranks) * (8 * p + 8 * values);
  const auto have = static_cast<double>(memory_bytes());
  if (need > have)
    throw SystemError(
        Fault::device,
        fmt::format("out of memory: MLPs with {:.4g} parameters, and {} samples a micro-batch with "
                    "{} interactions each on {} rank(s), need at least {:.3g} GB; expected at most "
                    "{:.3g} GB; lower --bottom, --top, --dim or --batch",
                    p, batch, products, ranks, 1e-9 * need, 1e-9 * have));
}

ClickDataOptions RecommenderOptions::click_data() const {
  return {.spec = data,
          .tables = tables,
          .rows = rows,
          .hash_rows = hash_rows,
          .categories = categories == "hex"    ? data::Categories::hexadecimal
                        : categories == "text" ? data::Categories::text
                                               : data::Categories::rows,
          .negatives = negatives,
          .bad_rows = bad_rows == "skip" ? data::BadRows::skip : data::BadRows::stop,
          .val_fraction = val_fraction,
          .val_samples = val_samples};
}

DlrmConfig RecommenderOptions::model(const data::ClickSchema& schema) const {
  return {.dense = schema.dense,
          .table_rows = schema.table_rows,
          .dim = dim,
          .bottom = bottom,
          .top = top,
          .mode = bag == "mean"       ? BagMode::mean
                  : bag == "weighted" ? BagMode::weighted
                                      : BagMode::sum};
}

optim::Schedule RecommenderOptions::table_learning_rate() const {
  optim::Schedule rate = learning_rate();
  rate.floor = lr > 0 ? table_lr * (rate.floor / lr) : 0;
  rate.base = table_lr;
  return rate;
}

}  // namespace lockstep::apps

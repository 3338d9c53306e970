#include "apps/training/registries.h"

#include "apps/cli/parse.h"
#include "core/check.h"
#include "core/registry.h"
#include "distributed/comm/launch.h"
#include "distributed/compress/compress_spec.h"
#include "distributed/sync_strategy.h"
#include "optim/table_optimizer.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

template <class R>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const auto& entry : R::instance().entries()) names.push_back(entry.name);
  return names;
}

// Where a strategy is given for a code, or a code for a strategy.
std::string other_option(const std::string& option, const std::string& name) {
  const auto names = option == "--compress" ? names_of<Registry<distributed::SyncStrategy>>()
                     : option == "--sync"   ? names_of<Registry<distributed::Compressor>>()
                                            : std::vector<std::string>{};
  if (std::ranges::find(names, name) == names.end()) return "";
  return option == "--sync" ? "; that is a code: --compress " + name
                            : "; that is a strategy: --sync " + name;
}

// A misspelt name gets a hint on top of the registry's own message.
template <class R>
void check_name(const std::string& option, const std::string& spec) {
  Spec parsed(spec);
  const std::vector<std::string> names = names_of<R>();
  for (const std::string& name : names)
    if (name == parsed.name()) {
      R::instance().find(parsed);  // its settings
      return;
    }
  std::string hint = other_option(option, parsed.name());
  if (const std::string best = closest(parsed.name(), names); hint.empty() && !best.empty())
    hint = fmt::format("; did you mean {}?", best);
  throw UsageError(fmt::format("{}: expected {}, got '{}'{}", option, fmt::join(names, ", "),
                               parsed.name(), hint));
}

// Something to try an optimiser's settings on.
class OneWeight final : public layers::Module {
 public:
  OneWeight() { add_parameter("weight", weight_, Decay::yes); }

 private:
  Tensor weight_ = zeros({1});
};

}  // namespace

std::string strategy_help() { return Registry<distributed::SyncStrategy>::instance().help(); }
std::string backend_help() {
  return "auto          solo for one rank, else threads (the default)\n" +
         Registry<distributed::Launcher>::instance().help();
}
std::string optimizer_help() { return optim::OptimizerRegistry::instance().help(); }
std::string table_optimizer_help() { return optim::TableOptimizerRegistry::instance().help(); }
std::string schedule_help() {
  return "constant      --lr throughout (the default)\n"
         "linear        from --lr down to --min-lr at the last step\n"
         "cosine        the same along half a cosine\n"
         "All grow linearly over the first --warmup steps.\n";
}
std::string teach_help() {
  return "The classic mistakes, on purpose:\n"
         "none            train correctly (the default)\n"
         "sum             gradients are summed over ranks but not divided by their number\n"
         "reduce-running  the running sum is reduced after every micro-batch: early ones count "
         "again\n"
         "no-division     not divided by the number of micro-batches\n";
}

void check_strategy(const std::string& spec, const std::string& option) {
  check_name<Registry<distributed::SyncStrategy>>(option, spec);
  distributed::make_strategy(spec);  // the values of its settings
}

void check_compressor(const std::string& text) {
  const auto spec = distributed::CompressSpec::parse(text);
  check_name<Registry<distributed::Compressor>>("--compress", spec.code);
  distributed::make_compressor(spec);  // the values of its settings
}

void check_optimizer(const std::string& spec, const optim::OptimizerOptions& options) {
  check_name<optim::OptimizerRegistry>("--optimizer", spec);
  OneWeight module;
  optim::FlatParams params(module);
  optim::make_optimizer(spec, params.all(), options);  // the values of its settings
}

void check_table_optimizer(const std::string& spec, double lr) {
  check_name<optim::TableOptimizerRegistry>("--table-optimizer", spec);
  optim::make_table_optimizer(spec, zeros({1, 1}), {.lr = lr});  // the values of its settings
}

std::string table_strategy_of(const std::string& sync) {
  const std::string tables(distributed::make_strategy(sync)->tables());
  if (!tables.empty()) return tables;
  std::vector<std::string> able;
  for (const auto& entry : Registry<distributed::SyncStrategy>::instance().entries())
    if (!distributed::make_strategy(entry.name)->tables().empty()) able.push_back(entry.name);
  throw UsageError(
      fmt::format("--sync {}: this strategy has no rule for embedding tables; expected {}", sync,
                  fmt::join(able, ", ")));
}

void check_backend(const std::string& spec, int64_t ranks) {
  check_name<Registry<distributed::Launcher>>("--backend", spec);
  check(spec != "solo" || ranks == 1,
        "--backend solo: expected --ranks 1, got {}; use --backend threads", ranks);
}

}  // namespace lockstep::apps

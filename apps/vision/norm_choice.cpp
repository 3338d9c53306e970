#include "apps/vision/norm_choice.h"

#include "apps/cli/parse.h"
#include "core/check.h"
#include "core/spec.h"
#include "distributed/sync_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::apps {
namespace {

using Kind = NormChoice::Kind;

struct Row {
  std::string name;
  Kind kind;
  const char* help;
};
const Row kRows[] = {
    {"batch", Kind::batch,
     "batch         batch normalisation over a rank's micro-batch (the default)\n"},
    {"sync_batch", Kind::sync_batch,
     "sync_batch    over the micro-batches of all ranks at once (SyncBN): two collectives a layer\n"
     "              and micro-batch; n ranks give what one gives with the whole batch, but\n"
     "              accumulated micro-batches still do not\n"},
    {"frozen_batch", Kind::frozen_batch,
     "frozen_batch  batch normalisation by running statistics that no longer change: samples do\n"
     "              not see each other, so micro-batches and ranks add up to the large batch\n"
     "  after       steps of ordinary batch normalisation first (a tenth of --steps, or none\n"
     "              with --init, which brings statistics)\n"},
    {"group", Kind::group, "group         group normalisation: each sample by itself (--groups)\n"},
    {"none", Kind::none, "none          no normalisation; blocks start as the identity\n"},
};

const Row& row_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  const std::string best = closest(name, names);
  throw UsageError(fmt::format("--norm: expected {}, got '{}'{}", fmt::join(names, ", "), name,
                               best.empty() ? "" : fmt::format("; did you mean {}?", best)));
}

}  // namespace

NormChoice NormChoice::parse(const std::string& text, int64_t after_by_default) {
  Spec spec(text);
  NormChoice choice{.kind = row_of(spec.name()).kind};
  if (choice.kind == Kind::frozen_batch) {
    spec.expect_keys({"after"});
    choice.after = spec.integer("after", after_by_default, {.min = 0});
  } else {
    spec.expect_keys({});
  }
  return choice;
}

std::string NormChoice::to_string() const {
  for (const Row& row : kRows)
    if (row.kind == kind)
      return kind == Kind::frozen_batch ? fmt::format("{}:after={}", row.name, after) : row.name;
  return "";
}

ResidualNetConfig::Norm NormChoice::layer() const {
  using Norm = ResidualNetConfig::Norm;
  return kind == Kind::group ? Norm::group : kind == Kind::none ? Norm::none : Norm::batch;
}

std::string NormChoice::warning(int64_t batch, int64_t accumulate, bool statistics) const {
  if (kind == Kind::frozen_batch && after == 0 && !statistics)
    return "--norm frozen_batch:after=0 freezes running statistics that no batch has made, means "
           "of 0 and variances of 1: nothing is normalised. Begin with --init, or freeze "
           "after=N steps.";
  const bool ever =
      kind == Kind::batch || kind == Kind::sync_batch || (kind == Kind::frozen_batch && after > 0);
  if (!ever || accumulate == 1) return "";
  return fmt::format(
      "{}batch normalisation sees {} samples{} at a time, not those of all {} micro-batches of a "
      "step: accumulating is not the same as a larger batch. With {} it is.",
      kind == Kind::frozen_batch ? fmt::format("in the first {} steps ", after) : "", batch,
      kind == Kind::sync_batch ? " a rank, joined over ranks," : "", accumulate,
      kind == Kind::frozen_batch ? "--init and after=0" : "--norm frozen_batch, group or none");
}

void NormChoice::expect_fits(const std::string& option, const std::string& spec) const {
  const bool meets = kind == Kind::sync_batch || (kind == Kind::frozen_batch && after > 0);
  check(!meets || distributed::make_strategy(spec)->steps_between_sync() != 0,
        "--norm {}: under {} {} ranks do not wait for each other, and so cannot share "
        "statistics; expected e.g. allreduce, or --norm batch, group, none",
        to_string(), option, spec);
}

std::string norm_help() {
  std::string text;
  for (const Row& row : kRows) text += row.help;
  return text;
}

}  // namespace lockstep::apps

#include "apps/bench/against/contests.h"

#include "apps/bench/presets.h"
#include "apps/cli/parse.h"
#include "core/check.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

using Of = Mark::Of;
using Bound = Mark::Bound;

std::string short_name(const std::string& precision) {
  return precision == "fp32" ? "fp32" : "bf16";
}
Limit limit_of(const std::string& precision) {
  return precision == "fp32" ? Limit::fp32 : Limit::bf16;
}

class Plan {
 public:
  explicit Plan(const ContestOptions& options) : o_(options) {}

  // A training step, and what memory it took where a mark for that is given.
  void step(const std::string& name, const std::string& precision, int64_t repeats, double mark,
            std::optional<double> memory = std::nullopt) {
    Contest contest = same_words("step", "step.py",
                                 {"--preset", name, "--precision", precision, "--threads",
                                  fmt::to_string(o_.threads), "--repeats", count(repeats)});
    contest.rows.push_back({.name = fmt::format("gpt-{}-{}", name, short_name(precision)),
                            .what = "training step, " + described(name, precision),
                            .unit = "ms",
                            .ours = {"step", "median_ms"},
                            .peer = Figure{"step", "median_ms"},
                            .mark = Mark{Of::ratio, Bound::at_least, mark},
                            .share = RowPlan::Share{{"step", "gflops"}, limit_of(precision)}});
    if (memory)
      contest.rows.push_back({.name = "memory-" + name,
                              .what = "peak resident memory of the same in " + precision,
                              .unit = "MB",
                              .ours = {"step", "peak_memory_mb"},
                              .peer = Figure{"step", "peak_memory_mb"},
                              .ratio = RowPlan::Ratio::part,
                              .mark = Mark{Of::ratio, Bound::at_most, *memory}});
    contests_.push_back(std::move(contest));
  }

  // The recipe that benchmarks/peers/nano.py has, too: 2,000 steps, and as many evaluated tokens
  // as if 2 x 20 batches were evaluated before, every 250 steps, and after.
  void nano(const std::string& precision, double mark) {
    if (o_.text.empty()) return;
    constexpr int64_t kWindows = 540, kContext = 64;
    const std::vector<std::string> both{
        "--text",  o_.text, "--precision",  precision, "--threads", fmt::to_string(o_.threads),
        "--steps", "2000",  "--eval-every", "250"};
    Contest contest;
    contest.ours = {"train",          "transformer",
                    "--layers",       "4",
                    "--heads",        "4",
                    "--width",        "128",
                    "--context",      "64",
                    "--batch",        "12",
                    "--bias",         "off",
                    "--gelu",         "exact",
                    "--vocab",        "char",
                    "--val-fraction", "0.1",
                    "--val-tokens",   fmt::to_string(kWindows * kContext + 1),
                    "--lr",           "1e-3",
                    "--min-lr",       "1e-4",
                    "--schedule",     "cosine",
                    "--warmup",       "100",
                    "--betas",        "0.9,0.99",
                    "--weight-decay", "0.1",
                    "--clip",         "1",
                    "--out",          o_.scratch + "/nano",
                    "--overwrite",    "--quiet",
                    "--json"};
    contest.ours.insert(contest.ours.end(), both.begin(), both.end());
    contest.peer = {"nano.py", "--val-windows", fmt::to_string(kWindows)};
    contest.peer.insert(contest.peer.end(), both.begin(), both.end());
    contest.rows.push_back({.name = "nano-" + short_name(precision),
                            .what = "whole process: " + described("4x128", precision) +
                                    ", 2,000 steps, 8 evaluations (validation loss)",
                            .unit = "s",
                            .ours = {"", kWallSeconds},
                            .peer = Figure{"", kWallSeconds},
                            .ratio = RowPlan::Ratio::part,
                            .mark = Mark{Of::ratio, Bound::at_most, mark},
                            .loss = RowPlan::Loss{{"", "val_loss"}, {"nano", "val_loss"}, 0.03}});
    contests_.push_back(std::move(contest));
  }

  void ranks(double mark) {
    Contest contest = same_words("parallel", "parallel.py",
                                 {"--preset", "4x128", "--ranks", "2", "--repeats", count(30)});
    contest.rows.push_back(
        {.name = "ranks-4x128",
         .what = "2 ranks × 1 thread (DDP over Gloo), " + described("4x128", "fp32"),
         .unit = "ms",
         .ours = {"parallel", "median_ms"},
         .peer = Figure{"parallel", "median_ms"},
         .mark = Mark{Of::ratio, Bound::at_least, mark},
         .share = RowPlan::Share{{"parallel", "gflops"}, Limit::fp32}});
    contests_.push_back(std::move(contest));
  }

  // Fresh rows every step on both sides.
  void recommender(const std::string& precision, double mark) {
    Contest contest = same_words("recommender", "dlrm.py",
                                 {"--precision", precision, "--threads", fmt::to_string(o_.threads),
                                  "--repeats", count(50)});
    contest.rows.push_back(
        {.name = "recommender-" + short_name(precision),
         .what = "training step, DLRM of 26 tables × 100,000 × 16, B 2048, SGD, " +
                 short_name(precision),
         .unit = "ms",
         .ours = {"recommender", "median_ms"},
         .peer = Figure{"recommender", "median_ms"},
         .mark = Mark{Of::ratio, Bound::at_least, mark},
         .share = RowPlan::Share{{"recommender", "gflops"}, limit_of(precision)}});
    contests_.push_back(std::move(contest));
  }

  void vision(const std::string& precision, double mark) {
    Contest contest = same_words("vision", "resnet.py",
                                 {"--precision", precision, "--threads", fmt::to_string(o_.threads),
                                  "--repeats", count(20)});
    contest.rows.push_back({.name = "vision-" + short_name(precision),
                            .what = "training step, residual net of 0.27 M parameters, B 64 of "
                                    "3 × 32 × 32, " +
                                    short_name(precision),
                            .unit = "ms",
                            .ours = {"vision", "median_ms"},
                            .peer = Figure{"vision", "median_ms"},
                            .mark = Mark{Of::ratio, Bound::at_least, mark},
                            .share = RowPlan::Share{{"vision", "gflops"}, limit_of(precision)}});
    contests_.push_back(std::move(contest));
  }

  void all_reduce() {
    Contest contest =
        same_words("allreduce", "all_reduce.py", {"--ranks", "2", "--repeats", count(100)});
    const struct {
      const char *name, *size, *line, *unit;
      double mark;
    } sizes[] = {{"4k", "4 KiB", "allreduce 2 ranks 4 KiB", "µs", 10},
                 {"256k", "256 KiB", "allreduce 2 ranks 256 KiB", "µs", 10},
                 {"4m", "4 MiB", "allreduce 2 ranks 4096 KiB", "ms", 3},
                 {"40m", "40 MiB", "allreduce 2 ranks 40960 KiB", "ms", 3}};
    for (const auto& [name, size, line, unit, mark] : sizes) {
      RowPlan row{.name = fmt::format("allreduce-{}", name),
                  .what = fmt::format("all-reduce of {} between 2 ranks (Gloo)", size),
                  .unit = unit,
                  .scale = unit == std::string("µs") ? 1000.0 : 1.0,
                  .ours = {line, "median_ms"},
                  .peer = Figure{line, "median_ms"},
                  .mark = Mark{Of::ratio, Bound::at_least, mark}};
      if (mark == 3) row.share = RowPlan::Share{{line, "gb_per_s"}, Limit::memory};
      contest.rows.push_back(std::move(row));
    }
    contests_.push_back(std::move(contest));
  }

  void adamw(double share) {
    Contest contest = same_words("optimizer", "optimizer.py",
                                 {"--elements", "50000000", "--threads", fmt::to_string(o_.threads),
                                  "--repeats", count(10)});
    contest.rows.push_back(
        {.name = "adamw-50m",
         .what = "AdamW on 50 M parameters (fused)",
         .unit = "ms",
         .ours = {"optimizer adamw", "median_ms"},
         .peer = Figure{"optimizer adamw", "median_ms"},
         .mark = Mark{Of::share, Bound::at_least, share},
         .share = RowPlan::Share{{"optimizer adamw", "gb_per_s"}, Limit::memory}});
    contests_.push_back(std::move(contest));
  }

  void allocations() {
    Contest contest;
    contest.program = Contest::Program::lockstep_mallocs;
    contest.ours = {"bench",
                    "step",
                    "--json",
                    "--preset",
                    "4x128",
                    "--threads",
                    fmt::to_string(o_.threads),
                    "--repeats",
                    count(20)};
    const auto add = [&](const char* name, const char* what, const char* key) {
      contest.rows.push_back({.name = name,
                              .what = what,
                              .unit = "a step",
                              .ours = {"step", key},
                              .mark = Mark{Of::ours, Bound::at_most, 0}});
    };
    add("storage-calls", "memory for tensors asked from the system, 4×128, warm",
        "system_allocations_per_step");
    add("malloc-calls", "calls of malloc in the whole process, 4×128, warm", "mallocs_per_step");
    contests_.push_back(std::move(contest));
  }

  std::vector<Contest> take() { return std::move(contests_); }

 private:
  // `lockstep bench WHAT …` against SCRIPT with the same options.
  static Contest same_words(const std::string& what, const std::string& script,
                            const std::vector<std::string>& words) {
    Contest contest;
    contest.ours = {"bench", what, "--json"};
    contest.peer = {script};
    for (auto* side : {&contest.ours, &contest.peer})
      side->insert(side->end(), words.begin(), words.end());
    return contest;
  }
  std::string count(int64_t repeats) const { return fmt::to_string(o_.repeats.value_or(repeats)); }
  static std::string described(const std::string& name, const std::string& precision) {
    const Preset& p = preset(name);
    return fmt::format("GPT {}×{}, T {}, B {}, {}", p.config.layers, p.config.width,
                       p.config.context, p.batch, short_name(precision));
  }

  const ContestOptions& o_;
  std::vector<Contest> contests_;
};

}  // namespace

std::vector<Contest> make_contests(const ContestOptions& options) {
  Plan plan(options);
  plan.step("6x384", "fp32", 10, 1.3, 0.5);
  plan.step("6x384", "amp-bf16", 10, 1.6);
  plan.step("4x128", "fp32", 30, 1.6);
  plan.step("4x128", "amp-bf16", 30, 3);
  plan.nano("fp32", 0.6);
  plan.nano("amp-bf16", 0.4);
  plan.ranks(1.6);
  plan.recommender("fp32", 1.6);
  plan.recommender("amp-bf16", 3);
  plan.vision("fp32", 1.2);
  plan.vision("amp-bf16", 1.2);
  plan.all_reduce();
  plan.adamw(0.8);
  plan.allocations();
  return plan.take();
}

std::vector<Contest> only(std::vector<Contest> contests, const std::vector<std::string>& names) {
  if (names.empty()) return contests;
  std::vector<std::string> known;
  for (const Contest& contest : contests)
    for (const RowPlan& row : contest.rows) known.push_back(row.name);
  const auto begins = [](const std::string& row, const std::string& name) {
    return !name.empty() && row.compare(0, name.size(), name) == 0;
  };
  for (const std::string& name : names)
    check(std::any_of(known.begin(), known.end(),
                      [&](const std::string& row) { return begins(row, name); }),
          "--only {}: expected the beginning of {}", name, fmt::join(known, ", "));
  for (Contest& contest : contests)
    std::erase_if(contest.rows, [&](const RowPlan& row) {
      return std::none_of(names.begin(), names.end(),
                          [&](const std::string& name) { return begins(row.name, name); });
    });
  std::erase_if(contests, [](const Contest& contest) { return contest.rows.empty(); });
  return contests;
}

}  // namespace lockstep::apps

#include "apps/bench/against/against.h"
#include "apps/bench/measure.h"
#include "apps/bench/presets.h"
#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/cli/parse.h"
#include "apps/commands.h"
#include "apps/report/json_text.h"
#include "apps/report/machine.h"
#include "core/check.h"
#include "core/parallel.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::apps {
namespace {

constexpr std::pair<const char*, Measurements (*)(const BenchOptions&)> kBenches[] = {
    {"matmul", bench_matmul},       {"attention", bench_attention},
    {"optimizer", bench_optimizer}, {"allreduce", bench_all_reduce},
    {"step", bench_step},           {"parallel", bench_parallel},
    {"probe", bench_probe},         {"recommender", bench_recommender},
    {"embedding", bench_embedding}, {"peaks", bench_peaks},
    {"virtual", bench_virtual},     {"vision", bench_vision}};

class Bench final : public Command {
 public:
  Bench() : Command("bench", "measure kernels, all-reduce, a training step, this machine") {
    options_.group("what");
    options_.positional(names_, "WHAT...",
                        "matmul, attention, embedding, optimizer, allreduce, step, parallel,\n"
                        "                        recommender, vision, probe, virtual, peaks");
    options_.choice("--preset", o_.preset, {"4x128", "6x384"}, "shapes of this GPT");
    options_.text("--precision", precision_, "NAME",
                  "of the step: fp32, amp-fp16, amp-bf16, half-fp16, half-bf16");
    options_.integer("--repeats", o_.repeats, {1, 100'000},
                     "times on the clock; the median counts");
    options_.integer("--threads", threads_, {0, 4096}, "0: all cores");
    options_.integer("--ranks", o_.ranks, {1, 64}, "of allreduce, parallel and virtual");
    options_.integer("--elements", o_.elements, {1'000'000, 1'000'000'000}, "of optimizer");
    options_.integer("--tables", o_.tables, {1, 10'000}, "of recommender");
    options_.integer("--rows", o_.rows, {1, INT32_MAX}, "of each of its tables");
    options_.text("--table-optimizer", o_.table_optimizer, "SPEC",
                  "of them: sgd, rowwise_adagrad, …");
    options_.flag("--json", json_, "one JSON object a line on stdout");
    against_.declare(options_);
  }
  std::vector<std::string> examples() const override {
    return {"bench", "bench step --preset 6x384 --precision amp-bf16",
            "bench --against ~/peer/bin/python --text shakespeare.txt --markdown"};
  }

  int run() override {
    against_.resolve(options_);
    o_.threads = threads_ == 0 ? available_cores() : threads_;
    if (!against_.python.empty()) {
      check(names_.empty(), "bench {}: expected --only {} with --against", fmt::join(names_, " "),
            fmt::join(names_, ","));
      const auto repeats = options_.given("--repeats") ? std::optional(o_.repeats) : std::nullopt;
      return run_against(against_, {o_.threads, repeats, json_});
    }
    std::vector<std::string> known;
    for (const auto& [name, bench] : kBenches) known.emplace_back(name);
    for (const std::string& name : names_) {
      const std::string best = closest(name, known);
      check(std::find(known.begin(), known.end(), name) != known.end(),
            "bench: expected {}, got '{}'{}", fmt::join(known, ", "), name,
            best.empty() ? "" : fmt::format("; did you mean {}?", best));
    }
    o_.precision = PrecisionOptions::named(precision_);
    const ThreadBudget budget(static_cast<int>(o_.threads));
    if (!json_)
      print(fmt::format("{} threads, {}\n", o_.threads, machine()["isa"].get<std::string>()));
    for (const auto& [name, bench] : kBenches)
      if (names_.empty() || std::find(names_.begin(), names_.end(), name) != names_.end())
        for (const Measurement& m : bench(o_)) print(json_ ? json_line(m) : line(m));
    return kOk;
  }

 private:
  static std::string line(const Measurement& m) {
    std::string text = fmt::format("{:<44}{:>10.3f} ms", m.name, m.ms);
    for (const auto& [key, value] : m.figures.items())
      text += fmt::format(
          "  {} {}", fmt::format("{:.{}f}", value.get<double>(), value.get<double>() < 100 ? 1 : 0),
          key);
    return text + "\n";
  }
  std::string json_line(const Measurement& m) const {
    nlohmann::ordered_json json{
        {"name", m.name}, {"median_ms", m.ms}, {"repeats", o_.repeats}, {"threads", o_.threads}};
    json.update(m.figures);
    return json_text(json, Layout::line);
  }

  std::vector<std::string> names_;
  BenchOptions o_;
  AgainstOptions against_;
  std::string precision_ = "fp32";
  int64_t threads_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_command() { return std::make_unique<Bench>(); }

}  // namespace lockstep::apps

#include "apps/report/run_log.h"

#include "apps/report/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

constexpr int kWarmSteps = 3;

}  // namespace

RunLog::RunLog(RunDirectory& directory, int64_t steps, const Throughput& throughput,
               Progress::Style style)
    : directory_(directory),
      progress_(steps, style, throughput.tokens_per_sample ? "tokens" : "samples"),
      throughput_(throughput) {}

void RunLog::step(const StepRecord& r) {
  directory_.write_step(r);
  directory_.keep();
  steps_ = r.step;
  skipped_ += r.skipped ? 1 : 0;
  loss_ = r.loss;
  step_times_.push_back(static_cast<float>(r.time_s));
  recent_time_ = recent_time_ == 0 ? r.time_s : 0.9 * recent_time_ + 0.1 * r.time_s;
  progress_.update(r.step, r.loss,
                   static_cast<double>(throughput_.samples_per_step *
                                       throughput_.tokens_per_sample.value_or(1)) /
                       recent_time_);
  if (!r.val_loss) return;
  val_loss_ = r.val_loss;
  val_accuracy_ = r.val_accuracy;
  if (std::isfinite(*r.val_loss))
    best_val_loss_ = std::min(best_val_loss_.value_or(*r.val_loss), *r.val_loss);
  std::string text = fmt::format("step {}: loss {:.4f}, ", r.step, r.loss);
  if (r.note.empty())
    text += fmt::format("validation loss {:.4f}, accuracy {:.1f} %", *r.val_loss,
                        100 * r.val_accuracy.value_or(NAN));
  progress_.note(text + r.note);
}

double RunLog::samples_per_s() const {
  std::vector<float> times = step_times_;
  if (times.size() > kWarmSteps) times.erase(times.begin(), times.begin() + kWarmSteps);
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return static_cast<double>(throughput_.samples_per_step) /
         static_cast<double>(times[times.size() / 2]);
}

nlohmann::ordered_json RunLog::finish(const Ending& ending) {
  const distributed::VerbStats total = ending.comm.total();
  const double rate = samples_per_s();
  std::optional<double> tokens;
  if (throughput_.tokens_per_sample)
    tokens = rate * static_cast<double>(*throughput_.tokens_per_sample);
  nlohmann::ordered_json summary{
      {"status", ending.status},
      {"final_loss", or_null(loss_)},
      {"val_loss", or_null(val_loss_)},
      {"val_accuracy", or_null(val_accuracy_)},
      {"best_val_loss", or_null(best_val_loss_)},
      {"samples_per_s", rate},
      {"tokens_per_s", or_null(tokens)},
      {"wire_bytes", std::llround(total.wire_bytes)},
      {"all_reduce_calls", ending.comm[distributed::Verb::all_reduce].calls},
      {"comm_s", ending.comm.comm_s},
      {"exposed_comm_s", ending.comm.exposed_s},
      {"steps", steps_},
      {"skipped_steps", skipped_},
      {"peak_memory_bytes", peak_memory_bytes()},
      {"wall_s", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()},
      {"virtual_s", nullptr}};
  summary.update(ending.more);
  directory_.begin_metrics();
  directory_.write_json(kSummaryFile, summary);
  return summary;
}

}  // namespace lockstep::apps

#include "apps/training/result_text.h"

#include "apps/report/progress.h"
#include "core/file.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::apps {

bool has(const TrainResult& result, const char* name) {
  const auto found = result.summary.find(name);
  return found != result.summary.end() && !found->is_null();
}

double number(const TrainResult& result, const char* name) {
  return has(result, name) ? result.summary[name].get<double>() : NAN;
}

std::string ending_text(const TrainResult& result) {
  return fmt::format("{} after {} steps in {}: loss {:.4f}",
                     result.summary["status"].get<std::string>(),
                     result.summary["steps"].get<int64_t>(),
                     duration_text(number(result, "wall_s")), number(result, "final_loss"));
}

std::string cost_text(const TrainResult& result, const std::string& unit, double per_second) {
  std::string text;
  if (const auto skipped = result.summary["skipped_steps"].get<int64_t>(); skipped > 0)
    text += fmt::format("; {} step{} skipped", skipped, skipped == 1 ? "" : "s");
  const bool modelled = has(result, "virtual_s");
  if (modelled) text += fmt::format("; {:.4g} s of modelled time", number(result, "virtual_s"));
  return text + fmt::format(
                    "; {:.0f} {}/s{}, {} all-reduces, {:.1f} MB on the wire a rank, peak memory "
                    "{:.0f} MB\n",
                    per_second, unit, modelled ? " on this machine" : "",
                    result.summary["all_reduce_calls"].get<int64_t>(),
                    number(result, "wire_bytes") / 1e6, number(result, "peak_memory_bytes") / 1e6);
}

std::string reports_text(const TrainResult& result) {
  return result.probe + result.profile + result.sync + result.compression + result.cluster +
         fmt::format("results in {}\n", printable(result.directory));
}

}  // namespace lockstep::apps

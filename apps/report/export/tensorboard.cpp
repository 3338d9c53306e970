#include "apps/report/export/tensorboard.h"

#include "apps/report/export/event_file.h"
#include "apps/report/export/scalars.h"
#include "core/check.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

namespace lockstep::apps {
namespace {

using nlohmann::json;

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw SystemError(Fault::file, fmt::format("--tensorboard: cannot make the directory {}: {}",
                                               printable(path), error.message()));
}

// When the run began, in seconds since 1970; 0 where it does not say.
double start_of(const RunFiles& run) {
  const auto started = run.run.find("started");
  std::tm time{};
  if (started == run.run.end() || !started->is_string() ||
      ::strptime(started->get_ref<const std::string&>().c_str(), "%Y-%m-%dT%H:%M:%SZ", &time) ==
          nullptr)
    return 0;
  return static_cast<double>(::timegm(&time));
}

std::string part_path(const std::string& folder, int part) {
  return fmt::format("{}/events.out.tfevents.{:010}.lockstep", folder, part);
}

class RunEvents {
 public:
  RunEvents(const std::string& folder, double start) : folder_(folder), time_(start) {}

  void step(const json& line) {
    const double number = number_in(line, "step"), seconds = number_in(line, "time_s");
    if (!std::isfinite(number)) return;  // no place to put it
    const auto step = static_cast<int64_t>(number);
    if (std::isfinite(seconds)) time_ += seconds;
    if (!file_ || step <= last_) begin_part(step);
    last_ = step;
    std::vector<std::pair<std::string, float>> values;
    for (const auto& [name, value] : scalars_of(line, '/'))
      if (name != "step")
        values.emplace_back(
            name, value.is_null() ? std::numeric_limits<float>::quiet_NaN() : value.get<float>());
    file_->scalars(step, time_, values);
  }

  // Older parts of an earlier export go away.
  void finish() {
    if (file_) file_->commit();
    for (std::error_code ignored; std::filesystem::remove(part_path(folder_, ++parts_), ignored);) {
    }
  }

 private:
  void begin_part(int64_t step) {
    const bool again = file_ != nullptr;
    if (again) file_->commit();
    file_ = std::make_unique<EventFile>(part_path(folder_, ++parts_), time_);
    if (again) file_->restart(step, time_);
  }

  std::string folder_;
  double time_;
  int parts_ = 0;
  int64_t last_ = 0;
  std::unique_ptr<EventFile> file_;
};

}  // namespace

void write_tensorboard(const std::string& directory, const std::vector<RunFiles>& runs) {
  for (const RunFiles& run : runs) {
    const std::string folder = directory + "/" + run.name;
    make_folder(folder);
    RunEvents events(folder, start_of(run));
    for_each_step(run.directory, [&](const json& step) { events.step(step); });
    events.finish();
  }
}

}  // namespace lockstep::apps

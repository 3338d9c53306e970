#include "apps/cli/console.h"
#include "apps/cli/interrupt.h"
#include "apps/commands.h"
#include "apps/report/json_text.h"
#include "apps/report/progress.h"
#include "apps/report/run_directory.h"
#include "apps/training/measure_compute.h"
#include "apps/training/train_loop.h"
#include "apps/vision/train_vision.h"
#include "core/file.h"
#include "distributed/comm/virtual_cluster/cluster.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::apps {
namespace {

class TrainVision final : public Command {
 public:
  TrainVision()
      : Command("train vision", "train a residual net on images, on one rank or several") {
    o_.declare(options_);
  }

  std::vector<std::string> examples() const override {
    return {"train vision --steps 1000 --out runs/a",
            "train vision --norm sync_batch --ranks 4 --batch 16",
            "train vision --norm frozen_batch --init runs/a --ranks 4 --batch 8 --accumulate 8",
            "train vision --data cifar10:cifar-10-batches-bin --steps 20000"};
  }

  int run() override {
    o_.resolve(options_);
    RunDirectory::check_usable(
        o_.out, o_.overwrite ? RunDirectory::Existing::overwrite : RunDirectory::Existing::refuse);
    const ImageData data = load_image_data(o_.image_data());
    o_.resolve(*data.source);
    o_.check_memory(data.source->schema());

    catch_interrupts();
    if (o_.on_virtual_cluster()) {
      auto cluster = distributed::virtual_cluster::Cluster::parse(o_.cluster);
      if (!cluster.compute) cluster.compute = measure_compute(vision_training(o_, data, {}));
      o_.cluster = cluster.to_string();
    }
    const TrainResult result = train(vision_training(o_, data, options_.values()));
    print(o_.json ? json_text(result.summary, Layout::line) : text(result));
    return result.exit_code;
  }

 private:
  static std::string text(const TrainResult& r) {
    const auto& s = r.summary;
    const auto number = [&](const char* name) {
      return s.contains(name) && !s[name].is_null() ? s[name].get<double>() : NAN;
    };
    std::string text = fmt::format("{} after {} steps in {}: loss {:.4f}",
                                   s["status"].get<std::string>(), s["steps"].get<int64_t>(),
                                   duration_text(number("wall_s")), number("final_loss"));
    if (!s["val_loss"].is_null())
      text += fmt::format(", held out: loss {:.4f}, accuracy {:.1f} %", number("val_loss"),
                          100 * number("val_accuracy"));
    if (s.contains("best_possible_accuracy"))
      text += fmt::format(" (best possible {:.4f}, {:.1f} %)", number("best_possible_loss"),
                          100 * number("best_possible_accuracy"));
    if (const auto skipped = s["skipped_steps"].get<int64_t>(); skipped > 0)
      text += fmt::format("; {} step{} skipped", skipped, skipped == 1 ? "" : "s");
    if (!s["virtual_s"].is_null())
      text += fmt::format("; {:.4g} s of modelled time", number("virtual_s"));
    text +=
        fmt::format("; {:.0f} images/s{}, {:.1f} MB on the wire a rank, peak memory {:.0f} MB\n",
                    number("samples_per_s"), s["virtual_s"].is_null() ? "" : " on this machine",
                    number("wire_bytes") / 1e6, number("peak_memory_bytes") / 1e6);
    return text + r.probe + r.profile + r.sync + r.compression + r.cluster +
           fmt::format("results in {}\n", printable(r.directory));
  }

  VisionOptions o_;
};

}  // namespace

std::unique_ptr<Command> train_vision_command() { return std::make_unique<TrainVision>(); }

}  // namespace lockstep::apps

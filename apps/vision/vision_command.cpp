#include "apps/cli/console.h"
#include "apps/cli/interrupt.h"
#include "apps/commands.h"
#include "apps/report/json_text.h"
#include "apps/report/run_directory.h"
#include "apps/training/measure_compute.h"
#include "apps/training/result_text.h"
#include "apps/training/train_loop.h"
#include "apps/vision/train_vision.h"

#include <fmt/format.h>

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
    o_.complete_cluster([&] { return measure_compute(vision_training(o_, data, {})); });
    const TrainResult result = train(vision_training(o_, data, options_.values()));
    print(o_.json ? json_text(result.summary, Layout::line) : text(result));
    return result.exit_code;
  }

 private:
  static std::string text(const TrainResult& r) {
    std::string text = ending_text(r);
    if (has(r, "val_loss"))
      text += fmt::format(", held out: loss {:.4f}, accuracy {:.1f} %", number(r, "val_loss"),
                          100 * number(r, "val_accuracy"));
    if (has(r, "best_possible_accuracy"))
      text += fmt::format(" (best possible {:.4f}, {:.1f} %)", number(r, "best_possible_loss"),
                          100 * number(r, "best_possible_accuracy"));
    return text + cost_text(r, "images", number(r, "samples_per_s")) + reports_text(r);
  }

  VisionOptions o_;
};

}  // namespace

std::unique_ptr<Command> train_vision_command() { return std::make_unique<TrainVision>(); }

}  // namespace lockstep::apps

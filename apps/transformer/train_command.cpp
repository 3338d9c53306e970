#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/cli/interrupt.h"
#include "apps/commands.h"
#include "apps/report/json_text.h"
#include "apps/report/run_directory.h"
#include "apps/training/measure_compute.h"
#include "apps/training/result_text.h"
#include "apps/training/train_loop.h"
#include "apps/transformer/train.h"
#include "core/check.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

class TrainTransformer final : public Command {
 public:
  TrainTransformer()
      : Command("train transformer", "train a GPT on a text, on one rank or several") {
    o_.declare(options_);
  }

  std::vector<std::string> examples() const override {
    return {"train transformer --text shakespeare.txt --steps 2000 --eval-every 250 --out runs/a",
            "train transformer --text synthetic:order=2 --steps 200 --optimizer sgd --lr 0.5 "
            "--momentum 0.9",
            "train transformer --text a.txt --ranks 8 --compress int8 --backend virtual --cluster "
            "slow=7:2"};
  }

  int run() override {
    o_.resolve(options_);
    RunDirectory::check_usable(
        o_.out, o_.overwrite ? RunDirectory::Existing::overwrite : RunDirectory::Existing::refuse);
    const LanguageData data = load_language_data({.text = o_.text,
                                                  .vocab = o_.vocab,
                                                  .context = o_.context,
                                                  .val_fraction = o_.val_fraction,
                                                  .val_tokens = o_.val_tokens});
    const int64_t windows = data.training->count();
    check(o_.ranks <= windows,
          "--ranks {}: expected at most one a window of the training text, of which there are {}",
          o_.ranks, windows);
    check(o_.global_batch <= windows,
          "--batch {} x --ranks {} x --accumulate {} = {} windows a step; expected at most the {} "
          "of the training text",
          o_.batch, o_.ranks, o_.accumulate, o_.global_batch, windows);
    o_.check_memory(data.tokenizer->vocab());

    catch_interrupts();
    o_.complete_cluster([&] { return measure_compute(transformer_training(o_, data, {})); });
    const TrainResult result = train(transformer_training(o_, data, options_.values()));
    print(o_.json ? json_text(result.summary, Layout::line) : text(result));
    return result.exit_code;
  }

 private:
  static std::string text(const TrainResult& r) {
    std::string text = ending_text(r);
    if (has(r, "val_loss"))
      text += fmt::format(", validation loss {:.4f}, accuracy {:.1f} %", number(r, "val_loss"),
                          100 * number(r, "val_accuracy"));
    if (has(r, "best_possible_loss"))
      text += fmt::format(" (best possible loss {:.4f})", number(r, "best_possible_loss"));
    return text + cost_text(r, "tokens", number(r, "tokens_per_s")) + reports_text(r);
  }

  TrainOptions o_;
};

}  // namespace

std::unique_ptr<Command> train_transformer_command() {
  return std::make_unique<TrainTransformer>();
}

}  // namespace lockstep::apps

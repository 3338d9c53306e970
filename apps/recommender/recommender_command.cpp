#include "apps/cli/console.h"
#include "apps/cli/interrupt.h"
#include "apps/commands.h"
#include "apps/recommender/click_report.h"
#include "apps/recommender/measure_clicks.h"
#include "apps/recommender/train_recommender.h"
#include "apps/report/json_text.h"
#include "apps/report/run_directory.h"
#include "apps/training/result_text.h"
#include "apps/training/train_loop.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

class TrainRecommender final : public Command {
 public:
  TrainRecommender()
      : Command("train recommender", "train a DLRM on clicks, on one rank or several") {
    o_.declare(options_);
  }

  std::vector<std::string> examples() const override {
    return {"train recommender --tables 26 --rows 100000 --batch 2048 --sync hybrid --ranks 2",
            "train recommender --data criteo:train.txt --hash-rows 1000000 --bad-rows skip",
            "train recommender --data interactions:pairs.tsv --negatives 4 --out runs/a",
            "train recommender --data synthetic:zipf=0.9,largest_bag=5 --bag mean"};
  }

  int run() override {
    o_.resolve(options_);
    RunDirectory::check_usable(
        o_.out, o_.overwrite ? RunDirectory::Existing::overwrite : RunDirectory::Existing::refuse);
    const ClickData data = load_click_data(o_.click_data());
    o_.resolve(*data.source);
    o_.check_memory(data.source->schema());

    catch_interrupts();
    o_.complete_cluster([&] { return measure_clicks(o_, data); });
    const TrainResult result = train(recommender_training(o_, data, options_.values()));
    print(o_.json ? json_text(result.summary, Layout::line) : text(result, *data.source));
    return result.exit_code;
  }

 private:
  static std::string text(const TrainResult& r, const data::ClickSource& source) {
    return ending_text(r) + cost_text(r, "samples", number(r, "samples_per_s")) +
           fmt::format("held out: {}\n",
                       r.evaluation.empty() ? "nothing was evaluated" : r.evaluation) +
           bad_rows_text(source) + reports_text(r);
  }

  RecommenderOptions o_;
};

}  // namespace

std::unique_ptr<Command> train_recommender_command() {
  return std::make_unique<TrainRecommender>();
}

}  // namespace lockstep::apps

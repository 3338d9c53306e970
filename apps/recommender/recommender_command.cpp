#include "apps/cli/console.h"
#include "apps/cli/interrupt.h"
#include "apps/commands.h"
#include "apps/recommender/click_report.h"
#include "apps/recommender/measure_clicks.h"
#include "apps/recommender/train_recommender.h"
#include "apps/report/json_text.h"
#include "apps/report/progress.h"
#include "apps/report/run_directory.h"
#include "apps/training/train_loop.h"
#include "core/file.h"
#include "distributed/comm/virtual_cluster/cluster.h"

#include <fmt/format.h>

#include <cmath>

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
    if (o_.on_virtual_cluster()) {
      auto cluster = distributed::virtual_cluster::Cluster::parse(o_.cluster);
      if (!cluster.compute) cluster.compute = measure_clicks(o_, data);
      o_.cluster = cluster.to_string();
    }
    const TrainResult result = train(recommender_training(o_, data, options_.values()));
    print(o_.json ? json_text(result.summary, Layout::line) : text(result, *data.source));
    return result.exit_code;
  }

 private:
  static std::string text(const TrainResult& r, const data::ClickSource& source) {
    const auto& s = r.summary;
    const auto number = [&](const char* name) {
      return s.contains(name) && !s[name].is_null() ? s[name].get<double>() : NAN;
    };
    std::string text = fmt::format("{} after {} steps in {}: loss {:.4f}",
                                   s["status"].get<std::string>(), s["steps"].get<int64_t>(),
                                   duration_text(number("wall_s")), number("final_loss"));
    if (const auto skipped = s["skipped_steps"].get<int64_t>(); skipped > 0)
      text += fmt::format("; {} step{} skipped", skipped, skipped == 1 ? "" : "s");
    if (!s["virtual_s"].is_null())
      text += fmt::format("; {:.4g} s of modelled time", number("virtual_s"));
    text +=
        fmt::format("; {:.0f} samples/s{}, {:.1f} MB on the wire a rank, peak memory {:.0f} MB\n",
                    number("samples_per_s"), s["virtual_s"].is_null() ? "" : " on this machine",
                    number("wire_bytes") / 1e6, number("peak_memory_bytes") / 1e6);
    text += fmt::format("held out: {}\n",
                        r.evaluation.empty() ? "nothing was evaluated" : r.evaluation);
    return text + bad_rows_text(source) + r.probe + r.profile + r.sync + r.compression + r.cluster +
           fmt::format("results in {}\n", printable(r.directory));
  }

  RecommenderOptions o_;
};

}  // namespace

std::unique_ptr<Command> train_recommender_command() {
  return std::make_unique<TrainRecommender>();
}

}  // namespace lockstep::apps

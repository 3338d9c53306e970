#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/commands.h"
#include "apps/report/curves.h"
#include "apps/report/export/csv.h"
#include "apps/report/export/tensorboard.h"
#include "apps/report/run_files.h"
#include "apps/report/run_table.h"
#include "apps/report/runs_page.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

constexpr size_t kMostOnTerminal = 16;  // one letter and one column each
constexpr size_t kMost = 256;

std::string text_report(const std::vector<RunFiles>& runs) {
  std::vector<Curve> curves;
  std::string legend;
  for (const RunFiles& run : runs) {
    curves.push_back({static_cast<char>('a' + curves.size()), run.loss});
    legend += fmt::format("{}{} {}", legend.empty() ? "" : "   ", curves.back().mark, run.name);
  }
  std::string text = text_of(tabulate(runs), runs);
  if (runs.size() > 1) {
    text += fmt::format("{:<{}}  {:.2g} over all steps and pairs of runs\n",
                        "curves differ by at most", kRunTableLabel, largest_difference(curves));
    legend += "   * several";
  }
  return text + "\ntraining loss   " + legend + "\n" + draw_curves(curves, 72, 13);
}

class Report final : public Command {
 public:
  Report() : Command("report", "put runs side by side: loss curves, speed, communication, memory") {
    options_.group("what");
    options_.positional(directories_, "DIR...", "directories of runs");
    options_.group("where to, beside the terminal");
    options_.text("--html", html_, "FILE", "one page with tables and charts, for any browser");
    options_.text("--csv", csv_, "FILE", "every step of every run as a table");
    options_.text("--tensorboard", tensorboard_, "DIR", "every step as TensorBoard's event files");
  }
  std::vector<std::string> examples() const override {
    return {"report runs/a", "report runs/a runs/b runs/c", "report runs/demo/*/",
            "report runs/*/ --html report.html --csv metrics.csv"};
  }

  int run() override {
    check(!directories_.empty(), "report: expected run directories, got none");
    const bool elsewhere = !html_.empty() || !csv_.empty() || !tensorboard_.empty();
    const size_t most = elsewhere ? kMost : kMostOnTerminal;
    check(directories_.size() <= most, "report: expected at most {} run directories, got {}", most,
          directories_.size());
    const std::vector<RunFiles> runs = read_runs(directories_);
    if (!html_.empty()) {
      AtomicFile file(html_);
      file.write(runs_page(runs));
      file.commit();
    }
    if (!csv_.empty()) write_csv(csv_, runs);
    if (!tensorboard_.empty()) write_tensorboard(tensorboard_, runs);
    if (runs.size() <= kMostOnTerminal) print(text_report(runs));
    return kOk;
  }

 private:
  std::vector<std::string> directories_;
  std::string html_, csv_, tensorboard_;
};

}  // namespace

std::unique_ptr<Command> report_command() { return std::make_unique<Report>(); }

}  // namespace lockstep::apps

#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/parse.h"
#include "apps/commands.h"
#include "apps/compare/comparison.h"
#include "apps/compare/verdict_text.h"
#include "apps/report/json_text.h"
#include "core/check.h"
#include "core/file.h"
#include "core/parallel.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr int64_t kLargestFile = int64_t{1} << 28;
constexpr const char* kText = "runs/demo/king-james.txt";  // what ./run demo makes

class Compare final : public Command {
 public:
  Compare() : Command("compare", "put the claims of the documents to the test") {
    options_.group("what");
    options_.flag("--list", list_, "the claims and their rules, without running anything");
    options_.text("--only", only_, "ID,…", "these claims; all of them without it");
    options_.flag("--quick", quick_,
                  "a preview: a verdict only where the rule's steps and seeds are few enough");
    options_.flag("--full", full_, "more steps and seeds than the rules need");
    options_.integer("--seeds", o_.seeds, {0, 1000}, "paired seeds; 0: as the rule has it");
    options_.text("--text", o_.text, "FILE",
                  "what transformers learn; without it " + std::string(kText) +
                      " where ./run demo made it, else synthetic");
    options_.group("how");
    options_.integer("--jobs", o_.jobs, {0, 1024}, "runs side by side, 0: one a core");
    options_.text("--out", o_.out, "DIR", "results; what is there already is not run again");
    options_.text("--check", check_, "FILE",
                  "a verdicts.json: exit code 7 when verdicts or figures have changed");
    options_.flag("--json", json_, "verdicts.json on stdout instead of the table");
    options_.flag("--quiet", o_.quiet, "no progress");
  }
  std::vector<std::string> examples() const override {
    return {"compare --list", "compare --quick --out runs/c",
            "compare --only B1b,B4a --seeds 5 --full",
            "compare --quick --check runs/c/verdicts.json"};
  }

  int run() override {
    check(!(quick_ && full_), "--quick: leave out --full, or the other way round");
    o_.extent = quick_ ? Extent::quick : full_ ? Extent::full : Extent::standard;
    o_.claims = chosen();
    if (list_) {
      print(list_of(o_.claims));
      return kOk;
    }
    if (o_.text.empty()) o_.text = ::access(kText, R_OK) == 0 ? kText : "synthetic";
    if (o_.text.rfind("synthetic", 0) != 0)
      File(o_.text, File::Mode::read);  // before anything runs
    if (o_.jobs == 0) o_.jobs = available_cores();
    std::optional<VerdictFile> before;
    if (!check_.empty()) before = verdicts_from(read_file(check_, kLargestFile), check_);
    if (before) expect_comparable(*before);
    o_.command = command();

    catch_interrupts();
    const Comparison comparison = compare(o_);
    if (comparison.interrupted) {
      complain(fmt::format("interrupted; what is done is kept in {}: the same command goes on",
                           printable(o_.out)));
      return interrupt_exit_code();
    }
    print(json_ ? json_text(to_json(comparison.verdicts), Layout::indented) : comparison.table);
    for (const std::string& failure : comparison.failures) say(failure + "\n");
    if (!before) return comparison.failures.empty() ? kOk : kUnexpected;
    return compared_with(*before, comparison);
  }

 private:
  std::vector<const Claim*> chosen() const {
    std::vector<std::string> known;
    for (const Claim& claim : claims()) known.push_back(claim.id);
    if (only_.empty()) {
      std::vector<const Claim*> all;
      for (const Claim& claim : claims()) all.push_back(&claim);
      return all;
    }
    std::vector<const Claim*> some;
    for (const std::string& id : split(only_, ',')) {
      const auto found = std::ranges::find(claims(), id, &Claim::id);
      const std::string best = closest(id, known);
      check(found != claims().end(), "--only: expected claims of {}, got '{}'{}",
            fmt::join(known, ","), printable(id),
            best.empty() ? "" : fmt::format("; did you mean {}?", best));
      if (std::ranges::find(some, &*found) == some.end()) some.push_back(&*found);
    }
    return some;
  }

  static std::string list_of(const std::vector<const Claim*>& claims) {
    std::string text;
    for (const Claim* claim : claims)
      text += fmt::format("{:<5} {} ({})\n      {}\n", claim->id, claim->statement, claim->source,
                          claim->rule);
    return text;
  }

  std::string command() const {
    std::string text = "lockstep compare";
    if (!only_.empty()) text += " --only " + only_;
    if (quick_) text += " --quick";
    if (full_) text += " --full";
    if (o_.seeds > 0) text += fmt::format(" --seeds {}", o_.seeds);
    return text + " --text " + o_.text;
  }

  // What --check could not tell anything of.
  void expect_comparable(const VerdictFile& before) const {
    const std::string extent = name_of(o_.extent);
    check(before.extent == extent, "--check {}: was made with the extent {}; expected {}",
          printable(check_), before.extent, extent);
    std::vector<std::string> missing;
    for (const Claim* claim : o_.claims)
      if (std::ranges::find(before.claims, claim->id, &ClaimRecord::id) == before.claims.end())
        missing.push_back(claim->id);
    check(missing.empty(), "--check {}: expected a verdict about {}; leave these out by --only",
          printable(check_), fmt::join(missing, ","));
  }

  int compared_with(const VerdictFile& before, const Comparison& now) const {
    const std::vector<std::string> found = regressions(before, now.verdicts);
    if (found.empty()) return now.failures.empty() ? kOk : kUnexpected;
    for (const std::string& what : found) say(what + "\n");
    complain(fmt::format("{} differences from {}", found.size(), printable(check_)));
    return kRegressed;
  }

  CompareOptions o_;
  std::string only_, check_;
  bool list_ = false, quick_ = false, full_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> compare_command() { return std::make_unique<Compare>(); }

}  // namespace lockstep::apps

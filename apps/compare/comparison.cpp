#include "apps/compare/comparison.h"

#include "apps/cli/console.h"
#include "apps/compare/verdict_text.h"
#include "apps/report/json_text.h"
#include "apps/report/machine.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <set>

namespace lockstep::apps {
namespace {

struct Planned {
  const Claim* claim;
  Setting setting;
  Needs needs;
  std::vector<std::string> keys;
};

void add(Planned& planned, const Needs& needs, RunStore& store) {
  const auto append = [&](const std::string& key) {
    if (std::ranges::find(planned.keys, key) == planned.keys.end()) planned.keys.push_back(key);
  };
  for (const RunRequest& run : needs.runs) {
    append(store.ask(run));
    planned.needs.runs.push_back(run);
  }
  for (const Experiment& experiment : needs.experiments) append(store.ask(experiment));
}

// A claim that rests on a run without a result has none either.
Outcome without_result(const std::string& why) {
  return {.verdict = {{Finding::inconclusive, Provenance::measured, "no result: " + why}, {}}};
}

ClaimSection section_of(const Planned& p, const CompareOptions& o, const Outcome& outcome) {
  ClaimSection section{.id = p.claim->id,
                       .statement = p.claim->statement,
                       .source = p.claim->source,
                       .done = p.claim->done,
                       .rule = p.claim->rule,
                       .figures = outcome.figures,
                       .charts = outcome.charts,
                       .verdict = outcome.verdict,
                       .takeaway = outcome.takeaway,
                       .kind = p.claim->kind};
  section.commands.push_back(fmt::format("lockstep compare --only {}{}{} --text {}", p.claim->id,
                                         o.extent == Extent::quick  ? " --quick"
                                         : o.extent == Extent::full ? " --full"
                                                                    : "",
                                         o.seeds > 0 ? fmt::format(" --seeds {}", o.seeds) : "",
                                         o.text));
  std::set<std::string> seen;
  for (const RunRequest& run : p.needs.runs)
    if (seen.insert(run.command()).second) section.commands.push_back(run.command());
  return section;
}

std::string row_of(const ClaimSection& s) {
  const auto cell = [](const Judgement& j) {
    return fmt::format("{} ({})", name_of(j.finding), name_of(j.provenance));
  };
  std::string text = fmt::format("{:<5} {:<38} {:<38} {}\n", s.id, cell(s.verdict.direction),
                                 s.verdict.size ? cell(*s.verdict.size) : "-", s.statement);
  for (const Figure& figure : s.figures) text += fmt::format("      {}\n", text_of(figure));
  return text;
}

std::string table_of(const std::vector<ClaimSection>& sections) {
  std::string text = fmt::format("{:<5} {:<38} {:<38} {}\n", "claim", "direction", "size", "says");
  for (const ClaimSection& section : sections) text += row_of(section);
  return text;
}

void fill(CompareReport& report, const CompareOptions& o, const RunStore::Done& done) {
  report.title = "Lockstep: the claims, put to the test";
  report.command = o.command;
  report.summary = fmt::format(
      "{} claims at the {} extent; {} runs and experiments, {} of them kept from earlier. What "
      "transformers learnt: {}.",
      o.claims.size(), name_of(o.extent), done.kept + done.made, done.kept, o.text);
  const nlohmann::ordered_json about = machine();
  for (const auto& [name, value] : about.items())
    if (name != "host")
      report.machine.emplace_back(name,
                                  value.is_string() ? value.get<std::string>() : value.dump());
}

void write(const std::string& path, const std::string& text) {
  AtomicFile out(path);
  out.write(text);
  out.commit();
}

}  // namespace

Comparison compare(const CompareOptions& o) {
  Comparison comparison;
  RunStore store(o.out);
  const RunStore::Options options{
      .jobs = o.jobs,
      .talk = o.quiet ? RunStore::Options::Talk::quiet : RunStore::Options::Talk::progress};
  std::vector<Planned> plans;
  for (const Claim* claim : o.claims) {
    plans.push_back({claim, claim->setting(o.extent, o.seeds, o.text), {}, {}});
    add(plans.back(), claim->ask(plans.back().setting), store);
  }
  const auto broken = [](const Planned& p, const RunStore::Done& done) {
    return std::ranges::find_if(p.keys,
                                [&](const std::string& key) { return done.failed.contains(key); });
  };
  RunStore::Done done = store.work(options);
  for (Planned& p : plans)
    if (!done.interrupted && p.claim->ask_again && broken(p, done) == p.keys.end())
      add(p, p.claim->ask_again(p.setting, store), store);
  if (!done.interrupted) {
    RunStore::Done more = store.work(options);
    more.kept -= done.made;
    more.made += done.made;
    done = std::move(more);
  }
  comparison.interrupted = done.interrupted;
  if (done.interrupted) return comparison;

  const nlohmann::ordered_json about = machine(), made_of = versions();
  VerdictFile& file = comparison.verdicts;
  file = {.version = made_of["lockstep"],
          .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .command = o.command,
          .isa = about["isa"],
          .extent = name_of(o.extent),
          .text = o.text,
          .machine = about,
          .versions = made_of};
  file.machine.erase("host");
  fill(comparison.report, o, done);
  comparison.report.date = file.date;

  for (const auto& [key, why] : done.failed) comparison.failures.push_back(why);
  for (const Planned& p : plans) {
    const auto without = broken(p, done);
    const Outcome outcome = without == p.keys.end() ? p.claim->outcome(p.setting, store)
                                                    : without_result(done.failed.at(*without));
    comparison.report.claims.push_back(section_of(p, o, outcome));
    file.claims.push_back({p.claim->id, outcome.verdict, outcome.figures, p.keys});
  }
  comparison.table = table_of(comparison.report.claims);
  write(o.out + "/verdicts.json", json_text(to_json(file), Layout::indented));
  write(o.out + "/report.html", report_page(comparison.report));
  return comparison;
}

}  // namespace lockstep::apps

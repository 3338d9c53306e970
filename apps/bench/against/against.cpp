#include "apps/bench/against/against.h"

#include "apps/bench/against/block.h"
#include "apps/bench/against/sides.h"
#include "apps/bench/against/table.h"
#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/parse.h"
#include "apps/report/json_text.h"
#include "apps/report/machine.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;
constexpr int64_t kLongestDocument = 16 << 20;

// A directory of its own that goes away.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr)
      throw SystemError(Fault::file,
                        fmt::format("cannot make a directory like {}", printable(path_)));
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double load_average() {
  double minute = 0;
  std::ifstream("/proc/loadavg") >> minute;
  return minute;
}

// Numbers of a processor whose name may say little ("Intel(R) Xeon(R) Processor").
std::string family_and_model() {
  std::ifstream in("/proc/cpuinfo");
  std::string family, model;
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.rfind("cpu family", 0) == 0) family = line.substr(colon + 2);
    if (line.rfind("model\t", 0) == 0) model = line.substr(colon + 2);
  }
  return family.empty() ? "" : fmt::format(" (family {}, model {})", family, model);
}

void describe(Table& table, const AgainstOptions& o, const AgainstRun& run,
              const std::string& torch) {
  const ordered_json here = machine(), with = versions();
  const auto word = [](const ordered_json& value) { return value.get<std::string>(); };
  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  const double load = load_average();
  table.context = {{"date", date},        {"machine", here},        {"versions", with},
                   {"torch", torch},      {"threads", run.threads}, {"rounds", o.rounds},
                   {"load_average", load}};
  table.heading = {
      fmt::format("{}{}, {} cores, {:.0f} GiB, {}, {}; load average {:.2f} before; {}.",
                  word(here["processor"]), family_and_model(), here["cores"].get<int>(),
                  here["memory_bytes"].get<double>() / (1 << 30), word(here["isa"]),
                  word(here["system"]), load, date),
      fmt::format("Lockstep {} ({}, {}, oneDNN {}) and PyTorch {} on the CPU, {} threads.",
                  word(with["lockstep"]), word(with["compiler"]), word(with["build"]),
                  word(with["libraries"]["onednn"]), torch, run.threads),
      fmt::format("The same work in turns, each time in a process of its own: medians of {} "
                  "round{}.",
                  o.rounds, o.rounds == 1 ? "" : "s")};
}

double number(const Results& results, const Figure& figure, const std::string& side,
              const RowPlan& row) {
  const auto value = results.find(figure);
  if (!value)
    throw SystemError(Fault::file,
                      fmt::format("{}: expected {} from {}, got none", row.name, figure.key, side));
  return *value;
}

// One side's numbers of a round.
void add_ours(std::vector<Row>& rows, const Results& results) {
  for (Row& row : rows) {
    row.ours.push_back(number(results, row.plan.ours, "Lockstep", row.plan) * row.plan.scale);
    if (row.plan.share)
      row.shared.push_back(number(results, row.plan.share->figure, "Lockstep", row.plan));
    if (row.plan.loss)
      row.our_loss.push_back(number(results, row.plan.loss->ours, "Lockstep", row.plan));
  }
}
void add_peers(std::vector<Row>& rows, const Results& results) {
  for (Row& row : rows) {
    if (row.plan.peer)
      row.peer.push_back(number(results, *row.plan.peer, "the peer", row.plan) * row.plan.scale);
    if (row.plan.loss)
      row.peer_loss.push_back(number(results, row.plan.loss->peer, "the peer", row.plan));
  }
}

void narrate(const std::vector<Row>& rows, int64_t round, int64_t rounds) {
  for (const Row& row : rows) {
    std::string text =
        fmt::format("{} {}/{}: {:.5g}", row.plan.name, round, rounds, row.ours.back());
    if (!row.peer.empty()) text += fmt::format(" against {:.5g}", row.peer.back());
    say(text + " " + row.plan.unit + "\n");
  }
}

// Whoever began a round is second in the next.
std::vector<Row> contend(const Contest& contest, const Sides& sides, int64_t rounds) {
  std::vector<Row> rows;
  for (const RowPlan& plan : contest.rows) rows.push_back({.plan = plan});
  if (contest.peer.empty()) rounds = 1;
  for (int64_t round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      if ((round + turn) % 2 == 0)
        add_ours(rows, sides.ours(contest.ours, contest.program));
      else if (!contest.peer.empty())
        add_peers(rows, sides.peer(contest.peer));
    }
    narrate(rows, round + 1, rounds);
  }
  return rows;
}

void measure(Table& table, const AgainstOptions& o, const AgainstRun& run, const Sides& sides,
             const std::vector<Contest>& contests) {
  const auto add_limits = [&] {
    std::vector<std::string> words{"bench", "peaks", "--json", "--threads",
                                   fmt::to_string(run.threads)};
    if (run.repeats) words.insert(words.end(), {"--repeats", fmt::to_string(*run.repeats)});
    add_peaks(table.limits, sides.ours(words));
  };
  add_limits();
  for (const Contest& contest : contests) {
    if (!Sides::has(contest.program)) {
      table.notes.push_back(
          "Allocations are left out: lockstep_mallocs, which counts them, is not beside the "
          "program; cmake --preset release -DLOCKSTEP_BENCHMARKS=ON builds it.");
      continue;
    }
    for (Row& row : contend(contest, sides, o.rounds)) table.rows.push_back(std::move(row));
  }
  add_limits();  // again: a limit is the best of all tries
  table.notes.push_back(
      "Ratio: how many times as fast as PyTorch; where the mark has a ≤, which part of PyTorch's. "
      "Limit: of steps the products' GFLOP/s, of AdamW and all-reduce bytes of parameters and "
      "moments, or of the buffer, a second.");
}

}  // namespace

void AgainstOptions::declare(OptionTable& t) {
  t.group("against PyTorch");
  t.text("--against", python, "PYTHON", "compare with PyTorch: a Python that has torch");
  t.text("--only", only, "NAME,…", "rows whose names begin so (all)");
  t.text("--text", text, "FILE",
         "what the whole training runs learn; without it they are left out");
  t.integer("--rounds", rounds, {1, 1000}, "turns of both sides; the median counts");
  t.number("--timeout", timeout_s, {0.1, 1e6, ""}, "seconds that one process may take");
  t.flag("--markdown", markdown, "the table as it stands in docs/performance.md");
  t.text("--update", update, "FILE", "write it into FILE, between its marks, too");
  t.text("--peers", peers, "DIR", "the peers' scripts (benchmarks/peers of the source tree)");
}

void AgainstOptions::resolve(const OptionTable& given) const {
  if (!python.empty()) return;
  for (const char* name :
       {"--only", "--text", "--rounds", "--timeout", "--markdown", "--update", "--peers"})
    check(!given.given(name), "{}: expected --against PYTHON with it", name);
}

int run_against(const AgainstOptions& o, const AgainstRun& run) {
  catch_interrupts();
  try {
    const Scratch scratch;
    // Whatever can be wrong is said before minutes are spent.
    if (!o.text.empty()) File(o.text, File::Mode::read);
    const auto document = [&] { return read_file(o.update, kLongestDocument); };
    if (!o.update.empty()) with_block(document(), "", o.update);
    const std::vector<Contest> contests =
        only(make_contests({.threads = run.threads,
                            .repeats = run.repeats,
                            .text = o.text,
                            .scratch = scratch.path()}),
             o.only.empty() ? std::vector<std::string>() : split(o.only, ','));
    const Sides sides({.python = o.python, .peers = o.peers, .timeout_s = o.timeout_s});

    Table table;
    describe(table, o, run, sides.torch());
    if (o.text.empty() && o.only.empty())
      table.notes.push_back("Whole training runs are left out: they need --text FILE.");
    measure(table, o, run, sides, contests);
    print(run.json     ? json_text(as_json(table), Layout::line)
          : o.markdown ? as_markdown(table)
                       : as_text(table));
    if (!o.update.empty()) {
      const std::string text = with_block(document(), as_markdown(table), o.update);
      AtomicFile file(o.update);
      file.write(text);
      file.commit();
    }
    return kOk;
  } catch (const Interrupted&) {
    complain("interrupted; there is no table of what was not compared");
    return interrupt_exit_code();
  }
}

}  // namespace lockstep::apps

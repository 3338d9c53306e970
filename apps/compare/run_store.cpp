#include "apps/compare/run_store.h"

#include "apps/bench/against/child.h"
#include "apps/cli/exit_code.h"
#include "apps/cli/interrupt.h"
#include "apps/compare/runs_progress.h"
#include "apps/report/json_text.h"
#include "apps/report/run_directory.h"
#include "core/check.h"
#include "core/file.h"
#include "core/kernels/cpu/isa.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace lockstep::apps {
namespace {

using nlohmann::json, nlohmann::ordered_json;

constexpr int64_t kLargestFile = int64_t{1} << 30;

[[noreturn]] void fail(std::string_view doing, const std::string& path) {
  throw SystemError(Fault::file, fmt::format("--out: cannot {} {}: {}", doing, printable(path),
                                             std::generic_category().message(errno)));
}

void make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) fail("make the directory", part);
    if (slash == std::string::npos) return;
  }
}

// Nothing where it is missing or not ours: then it is made again.
json object_in(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return {};
  const json object = json::parse(read_file(path, kLargestFile), nullptr, false);
  return object.is_object() ? object : json();
}

void write_json(const std::string& path, const ordered_json& value) {
  AtomicFile out(path);
  out.write(json_text(value, Layout::indented));
  out.commit();
}

std::string last_line(const std::string& text) {
  const size_t last = text.find_last_not_of(" \n");
  if (last == std::string::npos) return "";
  const size_t begin = text.find_last_of('\n', last);
  return printable(text.substr(begin == std::string::npos ? 0 : begin + 1, last - begin), 400);
}

bool status_is_finished(const std::string& summary) {
  const json object = object_in(summary);
  return object.is_object() && object.value("status", "") == "finished";
}

}  // namespace

RunStore::RunStore(std::string directory) : directory_(std::move(directory)) {
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
  make_folders(directory_ + "/runs");
  lock_ = ::open((directory_ + "/runs").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail("open", directory_);
  // It goes with the process; a file system that knows no locks is used without.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw SystemError(Fault::file, fmt::format("--out: another comparison works in {}; expected a "
                                               "directory of its own",
                                               printable(directory_)));
  }
}

RunStore::~RunStore() { ::close(lock_); }

std::string RunStore::key_of(const RunRequest& request) const {
  return hash_of(canonical(request) + "\n" + fingerprint());
}

std::string RunStore::key_of(const Experiment& e) const {
  const ordered_json config{{"experiment", e.name}, {"parameters", e.parameters}};
  return hash_of(config.dump() + "\n" + program_fingerprint());
}

std::string RunStore::ask(const RunRequest& request) {
  const std::string key = key_of(request), config = canonical(request);
  add({key, config, request.command(), request.company, weight_of(request),
       [=, this](const Options& options) { return train(request, key, config, options); }});
  return key;
}

std::string RunStore::ask(const Experiment& e) {
  const std::string key = key_of(e);
  const std::string config =
      ordered_json{{"experiment", e.name}, {"parameters", e.parameters}}.dump();
  add({key, config, fmt::format("experiment {} {}", e.name, e.parameters.dump()), e.company,
       e.seconds, [=, this](const Options&) { return measure(e, key, config); }});
  return key;
}

void RunStore::add(Task task) {
  if (std::ranges::find(tasks_, task.key, &Task::key) == tasks_.end())
    tasks_.push_back(std::move(task));
}

// The configuration stands beside the result, so that neither a chance nor a hand is believed.
bool RunStore::complete(const Task& task) const {
  for (const char* name : {kResultFile, kAnswerFile}) {
    const json told = object_in(folder(task.key) + "/" + name);
    if (told.is_object() && told.value("config", "") == task.config) return true;
  }
  return false;
}

std::string RunStore::train(const RunRequest& request, const std::string& key,
                            const std::string& config, const Options& options) const {
  const std::string directory = folder(key);
  ::unlink((directory + "/" + kResultFile).c_str());
  std::vector<std::string> words{options.program};
  for (const std::string& word : request.words()) words.push_back(word);
  if (!request.options.contains("--threads")) words.insert(words.end(), {"--threads", "1"});
  words.insert(words.end(), {"--out", directory, "--overwrite", "--quiet"});
  const ChildOutcome child =
      run_child(words, {.timeout_s = request.timeout_s,
                        .environment = {{"LOCKSTEP_ISA", std::string(cpu::name_of(cpu::isa()))}}});
  const bool diverged = child.end == ChildOutcome::End::exited && child.code == kNumeric;
  if (!child.ok() && !diverged) return child.failure();
  if (!diverged && !status_is_finished(directory + "/" + kSummaryFile))
    return "it left no finished summary.json";
  make_folders(directory);  // where it diverged before its first step it left nothing
  write_json(directory + "/" + kResultFile,
             {{"key", key},
              {"command", request.command()},
              {"config", config},
              {"exit_code", child.code},
              {"failure", diverged ? "diverged: " + last_line(child.err) : ""},
              {"wall_s", child.wall_s}});
  return "";
}

std::string RunStore::measure(const Experiment& e, const std::string& key,
                              const std::string& config) const {
  const ordered_json answer = e.measure(e.parameters);
  make_folders(folder(key));
  write_json(folder(key) + "/" + kAnswerFile, {{"config", config}, {"answer", answer}});
  return "";
}

RunStore::Done RunStore::work(const Options& options) {
  Done done;
  std::vector<const Task*> shared, alone;
  for (const Task& task : tasks_) {
    if (failed_.contains(task.key)) continue;
    if (complete(task))
      ++done.kept;
    else
      (task.company == Company::others ? shared : alone).push_back(&task);
  }
  double weight = 0;
  for (const auto* list : {&shared, &alone})
    for (const Task* task : *list) weight += task->weight;
  RunsProgress progress(
      static_cast<int64_t>(shared.size() + alone.size()), weight,
      options.talk == Options::Talk::quiet ? Progress::Style::quiet : Progress::fitting());
  std::mutex mutex;
  const auto drain = [&](const std::vector<const Task*>& list, int64_t workers) {
    std::atomic<size_t> next{0};
    const auto work_on = [&] {
      for (size_t i; interrupt_signal() == 0 && (i = next++) < list.size();) {
        const Task& task = *list[i];
        std::string why;
        try {
          why = task.run(options);
        } catch (const std::exception& e) {
          why = e.what();
        }
        const std::lock_guard lock(mutex);
        if (interrupt_signal() != 0 && !why.empty()) return;  // it was told to end
        if (why.empty())
          ++done.made;
        else
          failed_[task.key] = fmt::format("{}: {}", task.command, why);
        progress.finished(task.weight, task.command);
      }
    };
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < std::min(workers, static_cast<int64_t>(list.size())); ++i)
      threads.emplace_back(work_on);
  };
  drain(shared, options.jobs);
  drain(alone, 1);
  done.failed = failed_;
  done.interrupted = interrupt_signal() != 0;
  return done;
}

const RunResult& RunStore::result(const RunRequest& request) {
  const std::string key = key_of(request);
  if (const auto found = results_.find(key); found != results_.end()) return found->second;
  check(std::ranges::any_of(tasks_,
                            [&](const Task& task) { return task.key == key && complete(task); }),
        "[compare.store] no result of {}", request.command());
  return results_[key] = read_result(folder(key));
}

const json& RunStore::answer(const Experiment& e) {
  const std::string key = key_of(e);
  if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
  check(std::ranges::any_of(tasks_,
                            [&](const Task& task) { return task.key == key && complete(task); }),
        "[compare.store] no answer of {}", e.name);
  return answers_[key] = object_in(folder(key) + "/" + kAnswerFile)["answer"];
}

}  // namespace lockstep::apps

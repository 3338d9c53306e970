#include "apps/report/run_directory.h"

#include "apps/report/json_text.h"
#include "core/check.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>
#include <system_error>

namespace lockstep::apps {
namespace {

[[noreturn]] void fail(std::string_view doing, const std::string& path, int error) {
  throw SystemError(Fault::file, fmt::format("--out: cannot {} {}: {}", doing, printable(path),
                                             std::generic_category().message(error)));
}

// Whether this call made it.
bool make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  const int error = errno;
  struct stat status {};
  if (error == EEXIST && ::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return false;
    fail("make the directory", path, ENOTDIR);
  }
  fail("make the directory", path, error);
}

void make_parents(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (slash + 1 < path.size() && ::access(parent.c_str(), F_OK) != 0) make_folder(parent);
  }
}

bool holds_files(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) {
    if (errno == ENOENT) return false;
    fail("read", path, errno);
  }
  int names = 0;
  while (::readdir(folder) != nullptr && names < 3) ++names;
  ::closedir(folder);
  return names > 2;  // more than . and ..
}

constexpr std::initializer_list<const char*> kFiles{
    kRunFile, kMetricsFile, kSummaryFile, kModelFile, kTraceFile, kTimelineFile, kRanksFile};

}  // namespace

void RunDirectory::check_usable(const std::string& path, Existing existing) {
  if (path.empty()) return;
  check(existing == Existing::overwrite || !holds_files(path),
        "--out: {} already holds files; expected a new or empty directory; --overwrite replaces "
        "the run in it",
        printable(path));
}

RunDirectory::RunDirectory(const std::string& path, Existing existing) : path_(path) {
  check_usable(path, existing);
  if (path.empty()) {
    make_parents("runs/x");
    const std::string stem =
        fmt::format("runs/{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
    path_ = stem;
    for (int i = 2; !(made_ = make_folder(path_)); ++i) path_ = fmt::format("{}-{}", stem, i);
  } else {
    make_parents(path_);
    made_ = make_folder(path_);
  }
  try {
    lock();
    check_usable(path, existing);  // again: another run may have been quicker
  } catch (...) {
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
  for (const char* name : kFiles) ::unlink(file(name).c_str());
}

RunDirectory::~RunDirectory() {
  if (!kept_) {
    for (const char* name : kFiles) ::unlink(file(name).c_str());
    if (made_) ::rmdir(path_.c_str());
  }
  if (lock_ >= 0) ::close(lock_);
}

// Two runs in one directory would write into each other's files. The lock goes with the process; a
// file system that knows no locks is used without.
void RunDirectory::lock() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail("open", path_, errno);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw SystemError(Fault::file, fmt::format("--out: another run is writing into {}; expected a "
                                               "directory of its own",
                                               printable(path_)));
}

void RunDirectory::write_json(const std::string& name, const nlohmann::ordered_json& json) {
  AtomicFile out(file(name));
  out.write(json_text(json, Layout::indented));
  out.commit();
}

void RunDirectory::begin_metrics() {
  if (!metrics_) metrics_.emplace(file(kMetricsFile), File::Mode::replace);
}

void RunDirectory::write_step(const StepRecord& r) {
  nlohmann::ordered_json json{{"step", r.step},       {"time_s", r.time_s},
                              {"loss", r.loss},       {"lr", r.lr},
                              {"samples", r.samples}, {"wire_bytes", r.wire_bytes},
                              {"comm_s", r.comm_s},   {"exposed_comm_s", r.exposed_comm_s},
                              {"scale", r.scale},     {"skipped", r.skipped}};
  if (r.val_loss) json["val_loss"] = *r.val_loss;
  if (r.val_accuracy) json["val_accuracy"] = *r.val_accuracy;
  json.update(r.more);
  begin_metrics();
  const std::string line = json_text(json, Layout::line);
  try {
    metrics_->write(line);
  } catch (...) {
    metrics_->truncate(metrics_bytes_);
    throw;
  }
  metrics_bytes_ += static_cast<int64_t>(line.size());
}

}  // namespace lockstep::apps

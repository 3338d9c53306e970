#include "apps/bench/against/child.h"

#include "apps/cli/interrupt.h"
#include "core/check.h"
#include "core/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>

extern char** environ;

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;
using End = ChildOutcome::End;
constexpr int kTickMs = 50;                  // how late an interrupt or a silent end is noticed
constexpr size_t kLongestOutput = 16 << 20;  // a child that prints without end

struct Pipe {
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw SystemError(Fault::file, fmt::format("cannot make a pipe: {}",
                                                 std::generic_category().message(errno)));
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends{-1, -1};  // read, write
};

// Pointers as exec wants them. Made before the fork: afterwards no memory may be asked for.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment(const ChildOptions& options) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : options.environment)
      replaced = replaced || text.compare(0, name.size() + 1, name + "=") == 0;
    if (!replaced) out.push_back(text);
  }
  for (const auto& [name, value] : options.environment) out.push_back(name + "=" + value);
  return out;
}

// In the child. Says on `report` why it could not become the program.
[[noreturn]] void become(char* const* words, char* const* variables, int out, int err, int report,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
  const int in = ::open("/dev/null", O_RDONLY);
  if (::dup2(in, 0) == 0 && ::dup2(out, 1) == 1 && ::dup2(err, 2) == 2)
    ::execve(words[0], words, variables);
  const int why = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &why, sizeof why);
  ::_exit(127);
}

// Reads what there is; false at the end.
bool take(int fd, std::string& text) {
  char buffer[1 << 16];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (text.size() < kLongestOutput) text.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

// What is left in the pipe; a process that slipped away may hold it open.
void drain(int fd, std::string& text) {
  pollfd waiting{fd, POLLIN, 0};
  while (fd >= 0 && ::poll(&waiting, 1, 200) > 0 && take(fd, text)) {
  }
}

// Whether it has ended. It stays a zombie, so that its number is nobody else's.
bool ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == pid;
}

}  // namespace

std::string ChildOutcome::failure() const {
  std::string text = end == End::timed_out     ? fmt::format("not done after {:.0f} s", wall_s)
                     : end == End::interrupted ? "interrupted"
                     : end == End::killed      ? fmt::format("killed by signal {}", code)
                                               : fmt::format("exit code {}", code);
  const size_t last = err.find_last_not_of(" \n");
  if (last == std::string::npos) return text;
  const size_t begin = err.find_last_of('\n', last);
  return text + ": " +
         printable(err.substr(begin == std::string::npos ? 0 : begin + 1, last - begin), 400);
}

ChildOutcome run_child(const std::vector<std::string>& words, const ChildOptions& options) {
  Pipe out, err, report;
  std::vector<std::string> arguments = words, variables = environment(options);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
  const pid_t parent = ::getpid();
  const auto begin = Clock::now();
  const pid_t pid = ::fork();
  if (pid < 0)
    throw SystemError(Fault::file, fmt::format("cannot start {}: {}", printable(words[0]),
                                               std::generic_category().message(errno)));
  if (pid == 0) become(argv.data(), envp.data(), out.ends[1], err.ends[1], report.ends[1], parent);
  ::setpgid(pid, pid);  // whichever of the two comes first
  for (Pipe* pipe : {&out, &err, &report}) pipe->close(1);

  int why = 0;
  ssize_t told;
  while ((told = ::read(report.ends[0], &why, sizeof why)) < 0 && errno == EINTR) {
  }
  ChildOutcome outcome;
  const auto age = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  // Until it ends, which mostly is when it closes its output: a poll returns at once then.
  while (!ended(pid) && outcome.end == End::exited) {
    if (age() > options.timeout_s) outcome.end = End::timed_out;
    if (interrupt_signal() != 0) outcome.end = End::interrupted;
    pollfd waiting[] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};
    const bool silent = out.ends[0] < 0 && err.ends[0] < 0;
    if (::poll(waiting, 2, silent ? 1 : kTickMs) <= 0) continue;
    if (waiting[0].revents != 0 && !take(out.ends[0], outcome.out)) out.close(0);
    if (waiting[1].revents != 0 && !take(err.ends[0], outcome.err)) err.close(0);
  }
  outcome.wall_s = age();
  ::kill(-pid, SIGKILL);  // the child if it has not ended, and what it may have left behind
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  drain(out.ends[0], outcome.out);
  drain(err.ends[0], outcome.err);
  if (told > 0)
    throw SystemError(Fault::file, fmt::format("cannot run {}: {}", printable(words[0]),
                                               std::generic_category().message(why)));
  if (outcome.end == End::exited && WIFSIGNALED(status)) outcome.end = End::killed;
  outcome.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

}  // namespace lockstep::apps

#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

#include "test_paths.h"

/// Runs the program itself, as a user would.
namespace lockstep::test {

struct Outcome {
  int code = -1;  ///< exit code; 128 + signal when one ended it
  std::string out, err;
  int64_t error_lines() const { return std::count(err.begin(), err.end(), '\n'); }
};

/// A program under way, its stdout and stderr in files of a folder of its own.
class Process {
 public:
  explicit Process(const std::vector<std::string>& words, const std::string& shell_prefix = "") {
    std::string line = shell_prefix + " exec " LOCKSTEP_PROGRAM;
    for (const std::string& word : words) line.append(" ").append(quoted(word));
    line.append(" >").append(quoted(folder_ / "out"));
    line.append(" 2>").append(quoted(folder_ / "err")).append(" </dev/null");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Process() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  std::string err_so_far() const { return slurp(folder_ / "err"); }
  Outcome wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            slurp(folder_ / "out"), slurp(folder_ / "err")};
  }
  static std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
  }

 private:
  TempFolder folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

/// `shell_prefix` goes in front of the command: "ulimit -f 8;", "LC_ALL=de_DE.UTF-8".
inline Outcome lockstep(const std::vector<std::string>& words,
                        const std::string& shell_prefix = "") {
  return Process(words, shell_prefix).wait();
}

/// Words of a line, split at blanks.
inline std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = line.find_first_not_of(' ', at)) != std::string::npos;) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace lockstep::test

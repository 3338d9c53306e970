#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep::apps {

struct ChildOptions {
  double timeout_s = 600;
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to our own
};
struct ChildOutcome {
  enum class End { exited, killed, timed_out, interrupted };
  End end = End::exited;
  int code = 0;  ///< what it exited with, or the signal that killed it
  std::string out, err;
  double wall_s = 0;  ///< from its start to its end

  bool ok() const { return end == End::exited && code == 0; }
  /// "exit code 1: ModuleNotFoundError: …": how it ended and the last line it left on stderr.
  std::string failure() const;
};

/// Runs a program (a path, not looked up) with its arguments, nothing on stdin, and waits for it.
/// It and whatever it started are killed when the time is over or an interrupt asks for an end
/// (apps/cli/interrupt.h), and the child when this process dies. SystemError(file) when it cannot
/// be started.
ChildOutcome run_child(const std::vector<std::string>& words, const ChildOptions& options);

}  // namespace lockstep::apps

#pragma once
#include <functional>
#include <string>

namespace lockstep::apps {

/// What the program ends with. Scripts read these; see README.md.
enum ExitCode : int {
  kOk = 0,
  kUnexpected = 1,
  kUsage = 2,          ///< an option or a combination of them
  kFile = 3,           ///< data or a file: missing, empty, too short, malformed, disk full
  kDevice = 4,         ///< a device or memory
  kNumeric = 5,        ///< NaN, divergence
  kCommunication = 6,  ///< a rank died, stalled or disagreed
  kRegressed = 7,      ///< a comparison got worse
  kInterrupted = 130,  ///< Ctrl-C: ended cleanly, results written
  kTerminated = 143,   ///< SIGTERM: likewise
};

/// Runs `program`. Whatever it throws becomes one line on stderr and an exit code; this is the only
/// place that knows which.
int guarded(const std::function<int()>& program) noexcept;

}  // namespace lockstep::apps

#pragma once
#include <string>
#include <vector>

#include "apps/bench/against/child.h"
#include "apps/bench/against/contests.h"

namespace lockstep::apps {

/// An interrupt asked for an end; no error, but nothing more to do.
struct Interrupted {};

/// The two sides, each a process of its own every time.
class Sides {
 public:
  struct Options {
    std::string python;  ///< a path, or a name to look up in PATH
    std::string peers;   ///< where the scripts are
    double timeout_s;
  };
  /// Asks the Python for its torch. UsageError when it has none; SystemError(file) when it or a
  /// script is not there.
  explicit Sides(const Options& options);

  const std::string& torch() const { return torch_; }  ///< its version
  /// Throws Interrupted, and SystemError(file) when the process fails or is late.
  Results ours(const std::vector<std::string>& arguments,
               Contest::Program program = Contest::Program::lockstep) const;
  Results peer(const std::vector<std::string>& script) const;

  static bool has(Contest::Program program);

 private:
  Results run(const std::string& what, const std::vector<std::string>& words,
              const ChildOptions& options) const;

  Options options_;
  std::string torch_;
};

}  // namespace lockstep::apps

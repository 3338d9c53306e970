#pragma once
#include <functional>

#include "core/registry.h"
#include "distributed/comm/communicator.h"

namespace lockstep::distributed {

using RankFunction = std::function<void(Communicator&)>;

/// A way to have ranks, chosen by a spec string (`--backend`); `help` lists them.
class Launcher {
 public:
  static constexpr std::string_view kKind = "backend";
  virtual ~Launcher() = default;
  /// See run_ranks.
  virtual void run(int ranks, const CommOptions& options, const RankFunction& function) = 0;
};

/// Connects `ranks` ranks and calls the function once for each that lives in this process. With
/// `threads` the ranks are threads with a thread budget of 1; a single rank runs on the calling
/// thread with its budget. Returns when all have returned. If one throws, the group is aborted, the
/// others fail promptly, and the first failure (the root cause, not its peers') is thrown again.
/// Groups are independent: several may run in one process.
void run_ranks(int ranks, const CommOptions& options, const RankFunction& function);
inline void run_ranks(int ranks, const RankFunction& function) {
  run_ranks(ranks, CommOptions{}, function);
}

}  // namespace lockstep::distributed

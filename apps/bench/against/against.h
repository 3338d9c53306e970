#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "apps/cli/option_table.h"

namespace lockstep::apps {

/// `lockstep bench --against PYTHON`: the same work here and in PyTorch, alternating, as a table.
struct AgainstOptions {
  std::string python, only, text, peers, update;
  int64_t rounds = 5;
  double timeout_s = 600;
  bool markdown = false;

  void declare(OptionTable& table);
  /// UsageError for options that need --against without it.
  void resolve(const OptionTable& given) const;
};

struct AgainstRun {
  int64_t threads;
  std::optional<int64_t> repeats;  ///< instead of each row's own number
  bool json;
};
/// Returns the exit code. SystemError(file) for a peer that fails, is late or says nothing;
/// UsageError for a Python without torch.
int run_against(const AgainstOptions& options, const AgainstRun& run);

}  // namespace lockstep::apps

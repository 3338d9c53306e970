#pragma once
#include "core/state_io.h"

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

/// State of objects, copied out of them and back in memory.
///
///     MemoryState kept;
///     kept.save([&](StateIo& io) { optimizer.state(io); });
///     kept.load([&](StateIo& io) { other.state(io); });
class MemoryState {
 public:
  using Walk = std::function<void(StateIo&)>;

  /// Replaces what was kept. UsageError when two pieces have the same name.
  void save(const Walk& walk);
  /// Writes what was kept into what `walk` shows. UsageError when a piece is missing here, was not
  /// asked for, or is of another shape, dtype or kind; pieces before it are loaded by then.
  void load(const Walk& walk) const;
  /// Names of the pieces, sorted.
  std::vector<std::string> names() const;
  /// Whether both hold the same names, shapes and bits.
  friend bool operator==(const MemoryState& a, const MemoryState& b);

 private:
  struct Saver;
  struct Loader;
  std::map<std::string, std::variant<Tensor, int64_t, double>> pieces_;
};

}  // namespace lockstep

#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// Base of everything Lockstep throws on purpose. The text reads
/// `[room.operation] what; expected X, got Y`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller's mistake: a shape, a dtype, an option, the order of calls. Exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// What kind of thing failed; it decides the program's exit code.
enum class Fault {
  file,           ///< data or a file: missing, empty, malformed, disk full (exit code 3)
  device,         ///< a device or memory (exit code 4)
  numeric,        ///< NaN, infinity, divergence (exit code 5)
  communication,  ///< a peer, a time-out, a mismatched collective (exit code 6)
};

/// Where a distributed failure happened; fields that do not apply stay at their defaults.
struct FaultSite {
  int rank = -1;
  std::string operation;
  int64_t sequence = -1;
};

/// Something outside the caller's control failed.
class SystemError : public Error {
 public:
  SystemError(Fault fault, const std::string& text, FaultSite site = {})
      : Error(text), fault_(fault), site_(std::move(site)) {}
  Fault fault() const { return fault_; }
  const FaultSite& site() const { return site_; }

 private:
  Fault fault_;
  FaultSite site_;
};

/// Throws UsageError with the formatted text unless `ok`.
template <class... Args>
void check(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    throw UsageError(fmt::format(text, std::forward<Args>(args)...));
}

/// Products and sums of sizes; a result that does not fit int64 is an error, never a wrap.
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t product;
  check(!__builtin_mul_overflow(a, b, &product), "[core.size] {} x {} does not fit in 64 bits", a,
        b);
  return product;
}
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum;
  check(!__builtin_add_overflow(a, b, &sum), "[core.size] {} + {} does not fit in 64 bits", a, b);
  return sum;
}

}  // namespace lockstep

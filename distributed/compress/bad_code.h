#pragma once
#include <stdexcept>

namespace lockstep::distributed {

/// Bytes that are no code. Whoever knows the sender adds its name.
class BadCode : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::distributed

#pragma once
#include <gtest/gtest.h>

#include <string>

#include "core/check.h"

namespace lockstep::test {

/// Runs f and returns the text of the error that it must throw.
template <class E = UsageError, class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lockstep::test

#include "apps/cli/exit_code.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <new>

namespace lockstep::apps {
namespace {

template <class E>
int code_for(const E& exception) {
  testing::internal::CaptureStderr();
  const int code = guarded([&]() -> int { throw exception; });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(text.rfind("lockstep: ", 0), 0u) << text;
  return code;
}

TEST(ExitCodes, EveryKindOfFailureHasItsOwn) {
  EXPECT_EQ(guarded([] { return 0; }), 0);
  EXPECT_EQ(code_for(UsageError("a")), 2);
  EXPECT_EQ(code_for(SystemError(Fault::file, "a")), 3);
  EXPECT_EQ(code_for(SystemError(Fault::device, "a")), 4);
  EXPECT_EQ(code_for(std::bad_alloc()), 4);
  EXPECT_EQ(code_for(SystemError(Fault::numeric, "a")), 5);
  EXPECT_EQ(code_for(SystemError(Fault::communication, "a")), 6);
  EXPECT_EQ(code_for(std::runtime_error("two\nlines")), 1);
  EXPECT_EQ(guarded([]() -> int { throw 3; }), 1);
}

}  // namespace
}  // namespace lockstep::apps

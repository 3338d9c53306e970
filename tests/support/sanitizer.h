#pragma once

namespace lockstep::test {

/// For tests that repeat: under the thread sanitizer everything takes ten times as long, and what
/// it sees of a code path it sees in a few passes.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace lockstep::test

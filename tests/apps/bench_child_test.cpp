#include "apps/bench/against/child.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <thread>

namespace lockstep::apps {
namespace {

using End = ChildOutcome::End;

ChildOutcome shell(const std::string& script, const ChildOptions& options = {}) {
  return run_child({"/bin/sh", "-c", script}, options);
}

bool goes_away(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    if (::kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(BenchChild, GivesBothOutputsAndTheCode) {
  const ChildOutcome outcome = shell("echo out; echo err >&2; echo last >&2; exit 7");
  EXPECT_EQ(outcome.end, End::exited);
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.out, "out\n");
  EXPECT_EQ(outcome.err, "err\nlast\n");
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure(), "exit code 7: last");
  EXPECT_TRUE(shell("true").ok());
}

TEST(BenchChild, MayFillBothPipes) {
  const ChildOutcome outcome =
      shell("for i in 1 2 3; do head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; done");
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.out.size(), 3'000'000u);
  EXPECT_EQ(outcome.err.size(), 3'000'000u);
}

TEST(BenchChild, SeesItsEnvironmentAndNoInput) {
  const ChildOutcome outcome =
      shell("echo \"$LOCKSTEP_TEST:$HOME_TEST\"; cat", {.environment = {{"LOCKSTEP_TEST", "a b"}}});
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.out, "a b:\n");
}

TEST(BenchChild, IsKilledWithAllItStartedWhenTheTimeIsOver) {
  const ChildOutcome outcome = shell("sleep 300 & echo $!; wait", {.timeout_s = 0.5});
  EXPECT_EQ(outcome.end, End::timed_out);
  EXPECT_GE(outcome.wall_s, 0.5);
  EXPECT_LT(outcome.wall_s, 30);
  EXPECT_TRUE(goes_away(std::stoi(outcome.out)));
}

TEST(BenchChild, LeavesNothingBehind) {
  const ChildOutcome outcome = shell("sleep 300 & echo $!");
  EXPECT_TRUE(outcome.ok());
  EXPECT_LT(outcome.wall_s, 30);  // although the other one still holds the output
  EXPECT_TRUE(goes_away(std::stoi(outcome.out)));
}

TEST(BenchChild, KilledIsSaid) {
  const ChildOutcome outcome = shell("kill -9 $$");
  EXPECT_EQ(outcome.end, End::killed);
  EXPECT_EQ(outcome.failure(), "killed by signal 9");
}

TEST(BenchChild, WhatIsNotThereIsAnError) {
  for (const char* path : {"/nowhere/python", "/etc", "/etc/passwd"}) {
    try {
      run_child({path}, {});
      ADD_FAILURE() << path;
    } catch (const SystemError& e) {
      EXPECT_EQ(e.fault(), Fault::file);
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep::apps

#include "apps/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace lockstep::apps {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

extern "C" void remember_signal(int signal) {
  if (received.exchange(signal) != 0) ::_exit(128 + signal);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;  // a write that was under way goes on
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int interrupt_signal() { return received.load(std::memory_order_relaxed); }

int interrupt_exit_code() {
  const int signal = interrupt_signal();
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace lockstep::apps

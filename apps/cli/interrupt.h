#pragma once

namespace lockstep::apps {

/// From now on the first SIGINT or SIGTERM only asks for an end; the second ends at once.
void catch_interrupts();

/// The signal that asked for an end; 0: none did.
int interrupt_signal();

/// 130 for SIGINT, 143 for SIGTERM, 0 for none.
int interrupt_exit_code();

}  // namespace lockstep::apps

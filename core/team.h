#pragma once
#include <cstdint>

namespace lockstep {

/// Note [A team of our own]
/// Kernels share a few threads that live as long as the process. OpenMP's would do, but its threads
/// spin for milliseconds when idle: beside any other busy thread a training step took six times as
/// long as with threads that soon sleep. So: who waits spins, then sleeps. The spin is 200
/// microseconds long, enough from one kernel of a step to the next (to wake a thread costs up to 50
/// of them), while waits end within that time; after a wait that took longer, as they do where
/// another process has the core, it is 20. The caller takes the first piece and then whatever a
/// member has not begun, so a member that does not get a core delays nobody; whoever runs a piece,
/// the pieces are the same, and so are the results. oneDNN is called with one thread from each of
/// them.
///
/// Calls run(context, piece) for every piece in [0, pieces) and returns when all are done. Rethrows
/// the exception of the lowest piece that threw. One caller has the team at a time; others, and
/// calls from inside a piece, run their pieces themselves.
void run_pieces(int pieces, void* context, void (*run)(void* context, int piece));

}  // namespace lockstep

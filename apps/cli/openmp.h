#pragma once

namespace lockstep::apps {

/// Starts the program again, once, with libgomp told to spin only briefly; returns where that is not
/// needed or not possible. Note [Spinning] in openmp.cpp says why.
void spin_briefly(char** argv) noexcept;

}  // namespace lockstep::apps

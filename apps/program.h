#pragma once

namespace lockstep::apps {

/// What main does, for its arguments without the program's name. Never throws; returns the exit
/// code.
int run_program(int argc, char** argv) noexcept;

}  // namespace lockstep::apps

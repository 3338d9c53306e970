#pragma once

namespace lockstep {

/// What becomes of the rows of a bag. An empty bag gives zeros, in all of them.
enum class BagMode {
  sum,
  mean,      ///< their sum, divided by their number
  weighted,  ///< Σ weight · row
};

}  // namespace lockstep

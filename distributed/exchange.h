#pragma once
#include "distributed/comm/communicator.h"
#include "distributed/observer.h"
#include "optim/flat_params.h"

namespace lockstep::distributed {

/// Where a sum is divided, so that a narrow wire neither overflows nor loses small values. N̂ is the
/// least power of two that is at least the number of ranks, and divisors are powers of two: exact,
/// but for what falls below the wire's range.
///   none    not at all: sums of large values overflow
///   before  by N̂ before the wire: small values vanish
///   after   by N̂ after the sum: overflows where the sum is made in the wire's dtype
///   split   by about √N̂ before and the rest after
/// automatic: `none` on wires with the range of f32 (f32, bf16); on f16 `after` where sums are made
/// in f32 (nothing is lost), `split` where they are made in f16.
enum class Divide { automatic, none, before, after, split };

struct ExchangeOptions {
  DType wire = DType::f32;
  ReduceIn reduce_in = ReduceIn::f32;  ///< f32 and wire are the same on an f32 wire
  Divide divide = Divide::automatic;
};

/// Sums gradients over ranks: owns the wire's dtype. What strategies call instead of the
/// communicator for gradients.
class Exchange {
 public:
  /// `gradient`: dtype of the buffers that will be summed.
  Exchange(Communicator& comm, const ExchangeOptions& options, DType gradient);

  /// Starts to replace range.grad by factor() · Σ over ranks. The staging copy, where the wire or
  /// a division needs one, lives as long as the work.
  WorkPtr sum(const optim::FlatView& range, OpTag tag);
  /// What sums come out multiplied by: a power of two that the verdict undoes.
  double factor() const;

  /// Whether a sum that has finished since the last call was not finite: a wire of two bytes can
  /// overflow by itself. Equal on all ranks, whose sums have the same bits.
  bool take_overflow();

  /// Who looks at gradients on their way; null: nobody.
  void observe(GradientObserver* observer);
};

}  // namespace lockstep::distributed

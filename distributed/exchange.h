#pragma once
#include <memory>
#include <string>

#include "core/state_io.h"
#include "distributed/comm/communicator.h"
#include "distributed/compress/traffic.h"
#include "distributed/compress/window.h"
#include "distributed/sum_watch.h"
#include "optim/flat_params.h"

namespace lockstep::distributed {

class Compression;
class PushCode;

/// Where a sum over ranks is divided, so that a narrow wire neither overflows nor loses small
/// values. N̂ = 2^p is the least power of two that is at least the number of ranks; divisors are
/// powers of two: exact, but for what falls below the wire's range. The verdict multiplies again.
///   none    not at all: the sum of large values overflows
///   before  by N̂ before the wire: small values vanish
///   after   by N̂ after the sum: overflows where the sum is made in f16
///   split   by 2^⌈p/2⌉ before and the rest after. Up to 8 ranks, f16 values up to 32752 are safe,
///           and what vanishes is no larger than 2^⌈p/2⌉ · 2^-25
/// automatic: `none` where there is no f16; with an f16 wire `after` where sums are made in f32
/// (nothing is lost) and `split` where they are made in f16; `after` too where only the gradient
/// buffer is f16.
enum class Divide { automatic, none, before, after, split };

struct ExchangeOptions {
  DType wire = DType::f32;             ///< f32, f16 or bf16
  ReduceIn reduce_in = ReduceIn::f32;  ///< f32 and wire are the same on an f32 wire
  Divide divide = Divide::automatic;
  std::string compress = {};  ///< a CompressSpec: "int8:block=256+ef"; empty: none
  uint64_t seed = 1;          ///< of codes that draw random numbers, the same on all ranks
  Way way = Way::automatic;   ///< how compressed gradients are summed, where there is a choice
};

/// Sums gradients over ranks: owns the wire's dtype, compression and its residuals. What strategies
/// call instead of the communicator for gradients. All ranks sum the same ranges in the same order.
///
/// CONTRACT: one rank alone has a wire, too: its values are rounded as they would be among several,
/// so that its run and its probes show what the wire does. With an f32 wire nothing happens to
/// them.
class Exchange {
 public:
  /// `gradient`: dtype of the buffers that will be summed, which are not compressed. UsageError
  /// unless both are floating.
  Exchange(Communicator& comm, const ExchangeOptions& options, DType gradient);
  /// `all`: the buffer that gradients are ranges of, with its slices. UsageError for a wire, sums
  /// or divisions beside a compressor, which knows its own.
  Exchange(Communicator& comm, const ExchangeOptions& options, const optim::FlatView& all);
  ~Exchange();

  /// Starts to replace range.grad by factor() · Σ over ranks. In place where the wire is the
  /// buffer's dtype and nothing is divided before it; else through a staging copy that lives as
  /// long as the work, and range.grad is written when the caller sees the work finish: not at all
  /// if it fails.
  /// Compressed: Σ over ranks of what their codes say. SystemError(communication) naming the rank
  /// whose bytes are no code.
  WorkPtr sum(const optim::FlatView& range, OpTag tag);
  /// An upper bound of what that brings to this rank.
  double bytes(const optim::FlatView& range) const;

  /// The push path, where it compresses: a frame (u8) for the push_code() of a service that says
  /// what `values`, all elements of the flat gradient, are. Undefined where it is not finite.
  Tensor encode(const Tensor& values, const WindowTerms& terms);
  std::shared_ptr<const PushCode> push_code() const;  ///< null where nothing is compressed
  /// Bytes of a whole gradient that is pushed, at most.
  int64_t pushed_bytes() const;

  // What compression has to be told.

  bool compresses() const { return compression_ != nullptr; }
  /// Whether what codes lose is kept, so that scales matter.
  bool keeps_residuals() const;
  /// Whether momentum goes into what is sent, and so must not be the optimiser's, too.
  bool corrects_momentum() const;
  /// Whether something of elements [begin, end) is waiting on this rank to be sent.
  bool owes(int64_t begin, int64_t end) const;
  /// Before the first sum of a window.
  void window(const WindowTerms& terms);
  /// What it was told last.
  const WindowTerms& terms() const { return terms_; }
  /// The window is over: residuals are those after it, or, if it was skipped, as before.
  void resolve(bool applied);
  /// How many windows counted so far; 0 where nothing is compressed.
  int64_t windows() const;
  /// Residuals and how many windows were applied; between windows. May load on other ranges.
  void state(StateIo& io, Fold windows = Fold::replicated);

  /// What sums come out multiplied by: a power of two that the verdict undoes.
  double factor() const { return double{pre_} * double{post_}; }
  DType wire() const { return options_.wire; }
  /// How sums are made, and what they are divided by before the wire and after.
  ReduceSpec reduction() const {
    return {.reduce_in = options_.reduce_in, .pre = pre_, .post = post_};
  }

  /// What compression did so far; without a spec: nothing.
  CompressionReport report() const;

  /// Whether a sum that has finished since the last call was not finite: two bytes, on the wire or
  /// in the buffer, can overflow by themselves, and so can what is to be encoded with its residual.
  /// Equal on all ranks, whose sums have the same bits.
  /// Sums of f32 on an f32 wire are not looked at.
  bool take_overflow();

  /// Who looks at gradients on their way (GradientStage::wire, reduced); null: nobody. Not while a
  /// sum is on its way.
  void observe(GradientObserver* observer) { watch_->observer = observer; }

 private:
  class Sum;

  Communicator& comm_;
  ExchangeOptions options_;
  DType gradient_;
  float pre_ = 1, post_ = 1;  // before the wire, after the sum
  WindowTerms terms_;
  std::shared_ptr<SumWatch> watch_ = std::make_shared<SumWatch>();
  std::shared_ptr<Compression> compression_;  // null: none
  optim::FlatView all_;
};

}  // namespace lockstep::distributed

#pragma once
#include <span>
#include <vector>

#include "distributed/compress/compressor.h"
#include "distributed/compress/traffic.h"
#include "distributed/compress/window.h"
#include "optim/flat_params.h"

namespace lockstep::distributed {

/// What is known of a range of the flat gradient before its first sum: pieces, who owns which part,
/// and which way it goes. Equal on all ranks.
class RangePlan {
 public:
  /// `way`: what is wished for; see automatic.
  RangePlan(const optim::FlatView& range, const Compressor& code, bool feedback, int ranks,
            int rank, Way way);

  int64_t begin() const { return begin_; }
  int64_t numel() const { return numel_; }
  Way way() const { return way_; }
  const std::vector<int64_t>& ends() const { return ends_; }

  // Way::owned
  struct Owned {
    int64_t begin = 0, end = 0;  ///< elements of the range
    std::vector<int64_t> ends;   ///< pieces of the part alone
  };
  const std::vector<Owned>& owners() const { return owners_; }
  /// Pieces, cut at the borders of parts: what amplitudes go by.
  const std::vector<int64_t>& cut_ends() const { return cut_ends_; }

  /// What a sum brings to this rank at most.
  double most_bytes() const { return most_bytes_; }
  Traffic traffic;          ///< of its sums so far
  uint64_t loads_seen = 0;  ///< see Compression: whether residuals are where they belong

 private:
  Way choose(const Compressor& code, bool feedback, int ranks, Way way) const;
  double bytes_of(const Compressor& code, int ranks, int rank) const;
  Pieces pieces(std::span<const int64_t> ends) const { return {.ends = ends}; }

  int64_t begin_, numel_;
  std::vector<int64_t> ends_, cut_ends_;
  std::vector<Owned> owners_;
  Way way_;
  double most_bytes_ = 0;
};

/// Pieces of a range as a code's scope wants them: ends, counted from where the range begins.
std::vector<int64_t> piece_ends(const optim::FlatView& range, Compressor::Scope scope);

}  // namespace lockstep::distributed

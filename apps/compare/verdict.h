#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What `lockstep compare` finds out about a claim.
namespace lockstep::apps {

enum class Finding {
  reproduced,
  in_part,  ///< reproduced in part
  not_reproduced,
  inconclusive,  ///< at this scale
  not_testable   ///< here
};

/// Where a finding comes from. `measured`: real gradients or real time; `modelled`: true by
/// construction of the virtual clock; `arithmetic`: computed on paper.
enum class Provenance { measured, modelled, arithmetic };

/// One answer with its reason, in a sentence that names the figures it rests on.
struct Judgement {
  Finding finding = Finding::inconclusive;
  Provenance provenance = Provenance::measured;
  std::string reason;
};

/// Whether the claimed effect is there, and whether it is as large as claimed. A claim that names
/// no size has none.
struct Verdict {
  Judgement direction;
  std::optional<Judgement> size;
};

/// An interval of confidence, or of prediction where that is said.
struct Interval {
  double low = 0, high = 0;
  bool contains(double x) const { return low <= x && x <= high; }
};

/// A number that a claim rests on.
struct Figure {
  std::string name;  ///< "gap of async"; unique within a claim
  std::string unit;  ///< "nats", "%", "s", "": a plain number
  double value = 0;
  std::optional<Interval> interval;
  int64_t samples = 0;  ///< seeds or repeats behind it; 0: computed
  /// Standard deviation of one sample, where value is their mean: what predicts a repetition.
  std::optional<double> spread;
};

}  // namespace lockstep::apps

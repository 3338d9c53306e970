#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace lockstep::distributed {

/// How what receivers see of this rank's gradients, its code decoded, compares with the gradients.
struct Fidelity {
  int64_t begin = 0, numel = 0;  ///< elements of the flat gradient
  double relative_error = 0;     ///< |sent - raw| / |raw|, in Euclidean norms
  double cosine = 1;             ///< between both
  double sent_share = 1;         ///< of elements that are not zero as sent
  double summed_share = 1;       ///< of elements that are not zero in the sum over ranks
  /// Probed steps in a row in which the element that has waited longest was zero as sent.
  int64_t oldest_unsent = 0;

  /// What ranks' sets of sent elements have in common: 1 where they are the same, 0 where no two
  /// ranks sent an element. Each rank is taken to have sent as many as this one, which is so with
  /// top-k; elements that cancel in the sum count as if nobody had sent them.
  double overlap(int ranks) const;
};

/// Takes a step's gradients as backward left them, as sent and as summed, range by range.
class FidelityMeter {
 public:
  explicit FidelityMeter(int64_t numel) : numel_(numel) {}
  /// Forgets the step before, but for how long elements have waited.
  void begin() { ranges_.clear(); }
  void raw(int64_t begin, std::span<const float> values);
  void sent(int64_t begin, std::span<const float> values);
  void summed(int64_t begin, std::span<const float> values);

  /// Of all that was sent; as if it had been sent whole where nothing was.
  Fidelity all() const;
  /// Of each range that was sent, by place.
  std::vector<Fidelity> by_range() const;

 private:
  struct Sums {  // of squares and products; counts
    int64_t numel = 0;
    double raw = 0, sent = 0, dot = 0, error = 0;
    int64_t non_zero = 0, summed = 0, non_zero_summed = 0;
    int64_t oldest = 0;
    Fidelity fidelity(int64_t begin) const;
  };

  int64_t numel_;
  std::vector<float> raw_;       // empty until something was seen
  std::vector<int64_t> unsent_;  // by element: probed steps since it was last sent
  std::map<int64_t, Sums> ranges_;
};

}  // namespace lockstep::distributed

#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// A random text of which the best possible loss is known: a Markov source over the letters
/// 'a', 'b', … whose next letter depends on the last `order` ones. All transition probabilities are
/// positive, so there is one stationary distribution, from which texts start.
class MarkovSource {
 public:
  struct Options {
    int order = 1;      ///< 1 … 4
    int letters = 8;    ///< 2 … 26; letters^order <= 2^16
    uint64_t seed = 0;  ///< of the transition probabilities
  };
  explicit MarkovSource(const Options& options);

  /// `length` letters; texts of different `seed` are independent.
  std::string text(int64_t length, uint64_t seed) const;

  /// Entropy rate in nats a letter: -Σ_state π(state) Σ_letter p(letter|state) ln p(letter|state)
  /// (Cover & Thomas, Elements of Information Theory, eq. 4.27). No model has a lower expected
  /// loss.
  double entropy() const { return conditional_entropy(order_); }
  /// Entropy in nats of a letter whose last `known` predecessors are known, 0 <= known. More than
  /// `order` do not help.
  double conditional_entropy(int known) const;
  /// The best possible mean loss over windows of `context` inputs: the first predictions of a
  /// window know fewer than `order` letters.
  double best_loss(int64_t context) const;
  /// Mean of -ln p under the source itself over the letters of `text` after the first `order`.
  double cross_entropy(const std::string& text) const;

 private:
  int64_t states() const { return static_cast<int64_t>(stationary_.size()); }
  // A state is the last `order` letters as digits, the latest one last.
  int64_t follow(int64_t state, int letter) const { return (state * letters_ + letter) % states(); }

  int order_, letters_;
  std::vector<double> next_;        // [state, letter]
  std::vector<double> stationary_;  // [state]
};

}  // namespace lockstep::data

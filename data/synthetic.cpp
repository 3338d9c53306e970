#include "data/synthetic.h"

#include "core/check.h"
#include "core/random.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {
namespace {

// Draws from unnormalised weights by inverting their sum at u in [0, 1).
int64_t draw(const double* weights, int64_t n, double u) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += weights[i];
  double left = u * total;
  for (int64_t i = 0; i < n - 1; ++i)
    if ((left -= weights[i]) < 0) return i;
  return n - 1;
}

}  // namespace

MarkovSource::MarkovSource(const Options& options)
    : order_(options.order), letters_(options.letters) {
  check(order_ >= 1 && order_ <= 4, "[data.markov] order; expected 1..4, got {}", order_);
  check(letters_ >= 2 && letters_ <= 26, "[data.markov] letters; expected 2..26, got {}", letters_);
  int64_t count = 1;
  for (int i = 0; i < order_; ++i) count *= letters_;
  check(count <= 65536, "[data.markov] letters^order; expected at most 65536, got {}", count);

  // Log-normal weights: uneven enough that the source is worth learning, none of them zero.
  const Random random(options.seed, RandomStream::synthetic);
  next_.resize(count * letters_);
  for (size_t i = 0; i < next_.size(); ++i) next_[i] = std::exp(1.5 * random.normal(i));
  for (int64_t s = 0; s < count; ++s) {
    double sum = 0;
    for (int a = 0; a < letters_; ++a) sum += next_[s * letters_ + a];
    for (int a = 0; a < letters_; ++a) next_[s * letters_ + a] /= sum;
  }

  // Power iteration: every state reaches every other in `order` letters, so it converges
  // geometrically, whatever it starts from.
  stationary_.assign(count, 1.0 / static_cast<double>(count));
  std::vector<double> after(count);
  double change = 1;
  for (int round = 0; round < 100000 && change > 1e-15; ++round) {
    std::fill(after.begin(), after.end(), 0.0);
    for (int64_t s = 0; s < count; ++s)
      for (int a = 0; a < letters_; ++a)
        after[follow(s, a)] += stationary_[s] * next_[s * letters_ + a];
    double sum = 0;
    for (double p : after) sum += p;
    change = 0;
    for (int64_t s = 0; s < count; ++s) {
      after[s] /= sum;
      change = std::max(change, std::abs(after[s] - stationary_[s]));
    }
    stationary_.swap(after);
  }
}

std::string MarkovSource::text(int64_t length, uint64_t seed) const {
  check(length >= 0, "[data.markov] length; expected at least 0, got {}", length);
  const Random random(seed, RandomStream::synthetic, 1);  // key 0 made the transitions
  std::string text;
  int64_t state = draw(stationary_.data(), states(), random.uniform53(0));
  for (int64_t i = 0; i < length; ++i) {
    const auto letter =
        static_cast<int>(draw(&next_[state * letters_], letters_, random.uniform53(i + 1)));
    text.push_back(static_cast<char>('a' + letter));
    state = follow(state, letter);
  }
  return text;
}

double MarkovSource::conditional_entropy(int known) const {
  check(known >= 0, "[data.markov] known letters; expected at least 0, got {}", known);
  int64_t contexts = 1;
  for (int i = 0; i < std::min(known, order_); ++i) contexts *= letters_;
  // Joint probabilities of the known letters, which are the last digits of a state, and the next.
  std::vector<double> joint(contexts * letters_);
  for (int64_t s = 0; s < states(); ++s)
    for (int a = 0; a < letters_; ++a)
      joint[s % contexts * letters_ + a] += stationary_[s] * next_[s * letters_ + a];
  double entropy = 0;
  for (int64_t c = 0; c < contexts; ++c) {
    double sum = 0;
    for (int a = 0; a < letters_; ++a) sum += joint[c * letters_ + a];
    for (int a = 0; a < letters_; ++a)
      entropy -= joint[c * letters_ + a] * std::log(joint[c * letters_ + a] / sum);
  }
  return entropy;
}

double MarkovSource::best_loss(int64_t context) const {
  check(context >= 1, "[data.markov] context; expected at least 1, got {}", context);
  double sum = 0;
  const int64_t short_ones = std::min<int64_t>(context, order_ - 1);
  for (int64_t i = 0; i < short_ones; ++i) sum += conditional_entropy(static_cast<int>(i) + 1);
  return (sum + static_cast<double>(context - short_ones) * entropy()) /
         static_cast<double>(context);
}

double MarkovSource::cross_entropy(const std::string& text) const {
  const auto length = static_cast<int64_t>(text.size());
  check(length > order_, "[data.markov] text; expected more than {} letters, got {}", order_,
        length);
  int64_t state = 0;
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    const int letter = text[i] - 'a';
    check(letter >= 0 && letter < letters_,
          "[data.markov] text; expected letters of the source, got byte {} at {}",
          static_cast<unsigned char>(text[i]), i);
    if (i >= order_) sum -= std::log(next_[state * letters_ + letter]);
    state = follow(state, letter);
  }
  return sum / static_cast<double>(length - order_);
}

}  // namespace lockstep::data

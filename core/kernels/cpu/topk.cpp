#include "core/kernels/topk.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/kernels/cpu/feedback_loops.h"
#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/topk_loops.h"

/// Note [Top-k in one pass]
/// A sample tells a magnitude, the bound, that a little more than k elements should exceed. One
/// pass copies those that do, with their indices, and the k-th largest is sought among them by
/// counting in ever narrower buckets. Where fewer than k exceed the bound, most often it is the
/// k-th largest itself: one of many ties, zeros for one. Then a second pass takes the first of
/// them, as many as are wanted. Where the sample misled (the bound is too high, or so low that the
/// copies have no room), and for small tensors, the buckets count the whole tensor. All three ways
/// give the elements above the k-th largest magnitude and the first of those that have it, whatever
/// the bound was and wherever the tensor was cut for the threads.
namespace lockstep::cpu {
namespace {

constexpr int64_t kBlock = 64;  // elements; a piece is whole blocks
// A sample takes one element in kShare, but no more than kMostSamples of them: reading at random
// costs as much as reading kShare in turn.
constexpr int64_t kLeastSampled = 16384, kShare = 32, kMostSamples = 16384;

const TopkLoops& loops() { return LOCKSTEP_PICK_LOOPS(Topk); }

// What is chosen from: x, or the sum of both that is still to be written to `sum`.
struct Source {
  const float* x;
  float factor = 1;
  const float* residual = nullptr;
  float* sum = nullptr;

  const float* numbers() const { return sum ? sum : x; }
  float at(int64_t i) const { return sum ? factor * x[i] + residual[i] : x[i]; }
  void make(int64_t begin, int64_t n) const {
    if (sum) LOCKSTEP_PICK_LOOPS(Feedback).add(sum + begin, x + begin, factor, residual + begin, n);
  }
};

// A piece of the tensor, and what is known of it.
struct Piece {
  Stretch all, candidates, tied;
  int64_t above, ties;  // elements above the k-th largest magnitude, and that have it
  int64_t wanted;       // of the ties
  int64_t place;        // of its first result
};

class Pieces {
 public:
  explicit Pieces(const float* x, int64_t n)
      : count_(parallel_pieces(n, 4 * kGrain)), pieces_(count_) {
    const int64_t blocks = (n + kBlock - 1) / kBlock;
    const auto border = [&](int p) { return std::min(n, blocks * p / count_ * kBlock); };
    for (int p = 0; p < count_; ++p) {
      const int64_t begin = border(p);
      pieces_[p] = {
          .all = {x + begin, nullptr, border(p + 1) - begin, static_cast<int32_t>(begin)}};
    }
  }
  int count() const { return count_; }
  Piece& operator[](int p) const { return pieces_[p]; }

  /// f(piece, its number) on the team.
  template <class F>
  void each(F f) const {
    parallel_for(count_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) f(pieces_[p], p);
    });
  }
  template <class F>
  int64_t sum(F f) const {
    int64_t total = 0;
    for (int p = 0; p < count_; ++p) total += f(pieces_[p]);
    return total;
  }

 private:
  int count_;
  Scratch<Piece> pieces_;
};

// The k-th largest magnitude of the stretches that `of` names, 1 <= k <= their size, where none is
// below `low`; says in each piece how many are above it and have it. The search begins between
// `low` and `high`.
int32_t kth_largest(const Pieces& pieces, Stretch Piece::*of, int64_t k, int64_t low = 0,
                    int64_t high = kNanMagnitude) {
  const int64_t total = pieces.sum([&](const Piece& piece) { return (piece.*of).n; });
  // Few elements are not worth many buckets.
  const int digits = std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(total))), 4,
                                std::countr_zero(unsigned{BucketTables::kBuckets}));
  const Scratch<BucketTables> tables(pieces.count());
  const auto in_bucket = [&](int64_t piece, int32_t bucket) {
    int64_t count = 0;
    for (const auto& table : tables[piece].counts) count += table[bucket];
    return count;
  };
  for (;;) {
    const int shift =
        std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(high - low))) - digits);
    const auto buckets = static_cast<int32_t>(((high - low) >> shift) + 1);
    pieces.each([&](const Piece& piece, int64_t p) {
      for (auto& table : tables[p].counts)
        std::memset(table, 0, static_cast<size_t>(buckets + 2) * sizeof table[0]);
      loops().count_buckets(&tables[p], (piece.*of).values, (piece.*of).n,
                            static_cast<int32_t>(low), shift, buckets);
    });
    int32_t bucket = buckets + 1;
    for (int64_t above = 0;; --bucket) {
      for (int p = 0; p < pieces.count(); ++p) above += in_bucket(p, bucket);
      if (above >= k) break;
    }
    low += static_cast<int64_t>(bucket - 1) << shift;
    high = bucket > buckets ? kNanMagnitude : low + (int64_t{1} << shift) - 1;
    if (bucket > buckets || shift > 0) continue;
    for (int p = 0; p < pieces.count(); ++p) {
      pieces[p].ties = in_bucket(p, bucket);
      pieces[p].above = 0;
      for (int32_t b = bucket + 1; b <= buckets + 1; ++b) pieces[p].above += in_bucket(p, b);
    }
    return static_cast<int32_t>(low);
  }
}

// The r-th largest magnitude of `count` elements of n, one from each of as many equal parts.
int32_t sampled(const Source& x, int64_t n, int64_t count, int64_t r) {
  const Scratch<float> sample(count);
  parallel_for(count, kGrain / 8, [&](int64_t begin, int64_t end) {
    const auto part = [&](int64_t i) { return n * i / count; };
    for (int64_t i = begin, first = part(begin), next; i < end; ++i, first = next) {
      next = part(i + 1);
      // Anywhere within the part: tensors have periods of their own.
      uint64_t any = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
      any = ((any ^ any >> 32) * 0xbf58476d1ce4e5b9u) >> 32;
      sample[i] =
          x.at(first + static_cast<int64_t>(any * static_cast<uint64_t>(next - first) >> 32));
    }
  });
  const ThreadBudget alone(1);
  return kth_largest(Pieces(sample.data(), count), &Piece::all, r);
}

// Copies of some elements of each piece, with their indices, which become the stretches `of` it.
class Lists {
 public:
  /// Room for `most` elements of each.
  Lists(const Pieces& pieces, Stretch Piece::*of, int64_t most)
      : most_(most),
        values_(pieces.sum([&](const Piece& piece) { return room_of(piece) + kListPad; })),
        indices_(pieces.sum([&](const Piece& piece) { return room_of(piece) + kListPad; })),
        of_(of) {}
  int64_t room_of(const Piece& piece) const { return std::min(piece.all.n, most_); }

  /// take(values, indices, room, the piece's elements) copies some and returns how many.
  template <class Take>
  void fill(const Pieces& pieces, Take take) const {
    int64_t place = 0;
    for (int p = 0; p < pieces.count(); ++p) {
      pieces[p].place = place;
      place += room_of(pieces[p]) + kListPad;
    }
    pieces.each([&](Piece& piece, int64_t) {
      float* values = values_.data() + piece.place;
      int32_t* indices = indices_.data() + piece.place;
      const int64_t n = take(values, indices, room_of(piece), piece.all);
      piece.*of_ = {values, indices, n, 0};
    });
  }
  /// With what is above a magnitude, which may be -1. The numbers are made a little before they are
  /// looked at, while they are in the cache.
  void fill_above(const Pieces& pieces, int32_t magnitude, const Source& source) const {
    constexpr int64_t kAtOnce = 64 * kBlock;
    fill(pieces, [&](float* values, int32_t* indices, int64_t room, const Stretch& all) {
      int64_t taken = 0;
      const int64_t step = source.sum ? kAtOnce : std::max<int64_t>(all.n, 1);
      for (int64_t i = 0; i < all.n; i += step) {
        const int64_t n = std::min(step, all.n - i);
        const auto first = static_cast<int32_t>(all.first + i);
        source.make(first, n);
        taken += loops().take(values + taken, indices + taken, room - taken,
                              {all.values + i, nullptr, n, first}, magnitude, 0);
      }
      return taken;
    });
  }
  /// Whether more may have been there than a piece's list has room for.
  bool cut_short(const Piece& piece) const {
    return (piece.*of_).n == room_of(piece) && room_of(piece) < piece.all.n;
  }

 private:
  int64_t most_;
  Scratch<float> values_;
  Scratch<int32_t> indices_;
  Stretch Piece::*of_;
};

// How much further than `rank` of `count` samples chance may lead: four and a half standard
// deviations, and what small ranks need beside them.
int64_t margin(int64_t rank) {
  return static_cast<int64_t>(4.5 * std::sqrt(static_cast<double>(rank))) + 8;
}

class TopK {
 public:
  TopK(const Source& x, int64_t n, int64_t k) : x_(x), n_(n), k_(k), pieces_(x.numbers(), n) {
    if (n < kLeastSampled)
      pieces_.each([&](const Piece& piece, int64_t) { x.make(piece.all.first, piece.all.n); });
    else if (by_sample())
      return;
    ties_.reset();
    source_ = &Piece::all;
    magnitude_ = kth_largest(pieces_, source_, k);
  }

  void write(float* values, int32_t* indices) const {
    int64_t ties = k_ - pieces_.sum([](const auto&piece) { return piece.above; }), place = 0;
    for (int p = 0; p < pieces_.count(); ++p) {
      Piece& piece = pieces_[p];
      piece.wanted = std::min(ties, piece.ties);
      piece.place = place;
      ties -= piece.wanted;
      place += piece.above + piece.wanted;
    }
    pieces_.each([&](const Piece& piece, int64_t) {
      float* to = values + piece.place;
      int32_t* theirs = indices + piece.place;
      if (ties_)
        merge(to, theirs, piece);
      else
        loops().take(to, theirs, piece.above + piece.wanted, piece.*source_, magnitude_,
                     piece.wanted);
    });
  }

 private:
  // False where the sample misled.
  bool by_sample() {
    const int64_t samples = std::min(kMostSamples, n_ / kShare);
    const auto rank = static_cast<int64_t>(static_cast<double>(k_) / static_cast<double>(n_) *
                                           static_cast<double>(samples)) +
                      1;
    const int64_t with_margin = rank + margin(rank);
    const bool all = with_margin > samples;
    const int32_t bound = all ? -1 : sampled(x_, n_, samples, with_margin);
    const int64_t room = all ? n_ : (with_margin + margin(with_margin)) * (n_ / samples + 1);
    candidates_.emplace(pieces_, &Piece::candidates, room).fill_above(pieces_, bound, x_);
    bool cut_short = false;
    const int64_t found = pieces_.sum([&](const Piece& piece) {
      cut_short |= candidates_->cut_short(piece);
      return piece.candidates.n;
    });
    if (cut_short) return false;
    if (found >= k_) {
      // It is most often within half an octave of the bound.
      const int64_t low = bound + 1, high = std::min<int64_t>(low + (1 << 22) - 1, kNanMagnitude);
      source_ = &Piece::candidates;
      magnitude_ = kth_largest(pieces_, source_, k_, low, high);
      return true;
    }
    ties_.emplace(pieces_, &Piece::tied, k_ - found)
        .fill(pieces_, [&](float* values, int32_t* indices, int64_t most, const Stretch& from) {
          return loops().take_ties(values, indices, most, from, bound);
        });
    return found + pieces_.sum([](Piece& piece) {
      piece.above = piece.candidates.n;
      return piece.ties = piece.tied.n;
    }) >= k_;
  }

  // The candidates and the wanted ties, by their indices.
  static void merge(float* values, int32_t* indices, const Piece& piece) {
    const Stretch &above = piece.candidates, &tied = piece.tied;
    int64_t a = 0, t = 0;
    while (a < above.n && t < piece.wanted) {
      const bool first = above.indices[a] < tied.indices[t];
      const Stretch& from = first ? above : tied;
      const int64_t i = first ? a : t;
      *values++ = from.values[i];
      *indices++ = from.indices[i];
      a += first;
      t += !first;
    }
    values = std::copy_n(above.values + a, above.n - a, values);
    indices = std::copy_n(above.indices + a, above.n - a, indices);
    std::copy_n(tied.values + t, piece.wanted - t, values);
    std::copy_n(tied.indices + t, piece.wanted - t, indices);
  }

  Source x_;
  int64_t n_, k_;
  Pieces pieces_;
  std::optional<Lists> candidates_, ties_;
  Stretch Piece::*source_ = nullptr;  // has all that is above the k-th largest…
  int32_t magnitude_ = 0;             // …magnitude, and its ties unless these have a list
};

void expect_chosen(std::string_view name, const Tensor& indices, const Tensor& values,
                   const Tensor& x) {
  expect_dtype(name, "x", x, DType::f32);
  expect_dtype(name, "indices", indices, DType::i32);
  expect_dtype(name, "values", values, DType::f32);
}
void expect_sizes(std::string_view name, size_t indices, size_t values, size_t x) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  check(indices == values, "[kernel.{}] values; expected {} elements, got {}", name, indices,
        values);
  check(x <= kMost, "[kernel.{}] x; expected at most {} elements, got {}", name, kMost, x);
}
void expect_k(size_t k, size_t n) {
  check(k <= n, "[kernel.top_k] k; expected at most the {} elements of x, got {}", n, k);
}

template <class T>
std::span<const T> read(const Tensor& x) {
  return {x.data<T>(), static_cast<size_t>(x.numel())};
}
template <class T>
std::span<T> write(const Tensor& x) {
  return {x.mutable_data<T>(), static_cast<size_t>(x.numel())};
}

void top_k(const Tensor& indices, const Tensor& values, const Tensor& x) {
  expect_chosen("top_k", indices, values, x);
  kernel::top_k_of(write<int32_t>(indices), write<float>(values), read<float>(x));
}

int64_t select_above(const Tensor& indices, const Tensor& values, const Tensor& x,
                     float threshold) {
  expect_chosen("select_above", indices, values, x);
  return kernel::select_above_of(write<int32_t>(indices), write<float>(values), read<float>(x),
                                 threshold);
}

float sample_threshold(const Tensor& x, int64_t k, int64_t samples) {
  expect_dtype("sample_threshold", "x", x, DType::f32);
  return kernel::sample_threshold_of(read<float>(x), k, samples);
}

const Provide provided[] = {
    {kernel::top_k, DeviceType::cpu, top_k},
    {kernel::select_above, DeviceType::cpu, select_above},
    {kernel::sample_threshold, DeviceType::cpu, sample_threshold},
};

}  // namespace
}  // namespace lockstep::cpu

namespace lockstep::kernel {

using namespace cpu;

void top_k_of(std::span<int32_t> indices, std::span<float> values, std::span<const float> x) {
  expect_sizes("top_k", indices.size(), values.size(), x.size());
  expect_k(indices.size(), x.size());
  if (indices.empty()) return;
  TopK({x.data()}, static_cast<int64_t>(x.size()), static_cast<int64_t>(indices.size()))
      .write(values.data(), indices.data());
}

void top_k_of_sum(std::span<int32_t> indices, std::span<float> values, std::span<float> sum,
                  std::span<const float> x, float factor, std::span<const float> residual) {
  expect_sizes("top_k", indices.size(), values.size(), x.size());
  expect_k(indices.size(), x.size());
  check(x.size() == sum.size() && x.size() == residual.size(),
        "[kernel.top_k] sum and residual; expected {} elements, got {} and {}", x.size(),
        sum.size(), residual.size());
  const auto n = static_cast<int64_t>(x.size()), k = static_cast<int64_t>(indices.size());
  const Source source{x.data(), factor, residual.data(), sum.data()};
  if (k > 0)
    TopK(source, n, k).write(values.data(), indices.data());
  else
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { source.make(begin, end - begin); });
}

int64_t select_above_of(std::span<int32_t> indices, std::span<float> values,
                        std::span<const float> x, float threshold) {
  expect_sizes("select_above", indices.size(), values.size(), x.size());
  check(threshold >= 0, "[kernel.select_above] threshold; expected at least 0, got {}", threshold);
  const auto room = static_cast<int64_t>(indices.size());
  const int32_t below = (std::bit_cast<int32_t>(threshold) & 0x7fffffff) - 1;
  const Pieces pieces(x.data(), static_cast<int64_t>(x.size()));
  const Lists chosen(pieces, &Piece::candidates, room);
  chosen.fill_above(pieces, below, {x.data()});
  int64_t place = 0;
  for (int p = 0; p < pieces.count(); ++p) {
    pieces[p].place = std::min(place, room);
    place += pieces[p].candidates.n;
  }
  pieces.each([&](Piece& piece, int64_t) {
    const Stretch& list = piece.candidates;
    const auto count = static_cast<size_t>(std::min(list.n, room - piece.place));
    if (count > 0) {
      std::memcpy(values.data() + piece.place, list.values, count * sizeof(float));
      std::memcpy(indices.data() + piece.place, list.indices, count * sizeof(int32_t));
    }
    piece.above = chosen.cut_short(piece)
                      ? loops().count_above(piece.all.values, piece.all.n, below)
                      : list.n;
  });
  return pieces.sum([](const Piece& piece) { return piece.above; });
}

float sample_threshold_of(std::span<const float> x, int64_t k, int64_t samples) {
  const auto n = static_cast<int64_t>(x.size());
  check(1 <= k && k <= n, "[kernel.sample_threshold] k; expected 1 to {}, got {}", n, k);
  check(samples >= 1, "[kernel.sample_threshold] samples; expected at least 1, got {}", samples);
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t count = std::min({samples, n, kMost});
  const auto rank = static_cast<int64_t>(
      std::round(static_cast<double>(k) / static_cast<double>(n) * static_cast<double>(count)));
  const int32_t magnitude = sampled({x.data()}, n, count, std::clamp<int64_t>(rank, 1, count));
  return std::bit_cast<float>(std::min(magnitude, kNanMagnitude - 1));
}

}  // namespace lockstep::kernel

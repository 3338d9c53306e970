#pragma once
#include "data/bad_row_log.h"
#include "data/clicks.h"
#include "data/lines.h"

#include "core/random.h"

namespace lockstep::data {

/// User and item of a line. `wrong` says what is wrong with it, "" where nothing is.
struct InteractionFields {
  std::string_view user, item;
  std::string wrong;
  /// "user", "user_id" or "userId" in place of a user: what a first line may have.
  bool header() const;
};
InteractionFields interaction_fields(const Line& line);

/// Pairs of user and item, a line each with a TAB between them (further columns are left alone),
/// and for each pair a number of items that this user did not choose. Two tables, users and items,
/// and no dense features; a pair has label 1, a sampled one 0.
///
/// A user's or an item's row is the order in which it first appears, or its hash (see Note [From
/// categories to rows]). Samples are numbered pair by pair: sample p·(1+k) is pair p, the k
/// after it are its negatives: items drawn uniformly, none of which this user has anywhere in the
/// file, as a pure function of seed and sample number, so the same ones every epoch. Pairs are
/// numbered in an order that is shuffled, always in the same way, so that the last ones, which are
/// held out with their negatives, are pairs of all users rather than the file's end.
///
/// Kept in memory: 12 bytes a pair, and the names unless they are hashed; nothing that grows with
/// the rows that these are hashed to.
class Interactions final : public ClickSource {
 public:
  struct Options {
    std::string path;
    int64_t negatives = 4;  ///< for each pair, 0 … 1000
    int64_t hash_rows = 0;  ///< of both tables; 0: one row each
    uint64_t seed = 0;
    BadRows bad_rows = BadRows::stop;
    double held_out = 0.1;  ///< share of the pairs, 0 <= share < 1
  };
  /// SystemError(file) when it cannot be read, has no pair for training, or a user has every item
  /// where negatives are asked for. A first line "user<TAB>…" or "user_id<TAB>…" is a header.
  explicit Interactions(const Options& options);

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return (pairs() - held_out_) * each(); }
  int64_t held_out() const override { return held_out_ * each(); }
  SamplerOptions::Order order() const override { return SamplerOptions::Order::shuffled; }
  void fill(std::span<const int64_t> samples, ClickBuffer& to) const override;
  BadRowReport bad_rows() const override { return bad_rows_.report(); }
  int64_t pairs() const { return static_cast<int64_t>(users_.size()); }

 private:
  int64_t each() const { return 1 + options_.negatives; }
  void read();
  void group_by_user();
  // Users are numbered in order of first appearance, those that share a row as one.
  int32_t row_of(int32_t user) const { return user_rows_.empty() ? user : user_rows_[user]; }
  bool has(int32_t user, int32_t item) const;
  int32_t negative(int64_t sample, int32_t user) const;

  Options options_;
  BadRowLog bad_rows_;
  ClickSchema schema_;
  int64_t held_out_ = 0, count_ = 0;    // pairs, users
  std::vector<int32_t> user_rows_;      // by user; empty where they are their numbers
  std::vector<int32_t> users_, items_;  // of the pairs, as in the file
  std::vector<int64_t> begin_;          // of each user's part of ...
  std::vector<int32_t> owned_;          // ... the items, ascending and distinct within a user
};

}  // namespace lockstep::data

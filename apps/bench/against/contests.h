#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/against/results.h"

namespace lockstep::apps {

/// What has to come out for a row to count as met.
struct Mark {
  enum class Of { ratio, share, ours };
  enum class Bound { at_least, at_most };
  Of of = Of::ratio;
  Bound bound = Bound::at_least;
  double value = 0;
};

/// The machine's limits that a row may be held against, by their names.
enum class Limit { fp32, bf16, memory };

/// One row of the table, as planned.
struct RowPlan {
  std::string name;  ///< for --only: "gpt-6x384-fp32"
  std::string what;  ///< for people
  std::string unit;  ///< "ms"
  double scale = 1;  ///< figure · scale is in that unit
  Figure ours;
  std::optional<Figure> peer = {};
  /// How often the peer's time goes into ours (speed), or which part of the peer's ours is (part).
  enum class Ratio { speed, part } ratio = Ratio::speed;
  std::optional<Mark> mark = {};
  struct Share {
    Figure figure;  ///< of ours, in the limit's unit
    Limit limit;
  };
  std::optional<Share> share = {};
  /// Shown beside both sides; ours may be larger by `slack` and no more.
  struct Loss {
    Figure ours, peer;
    double slack;
  };
  std::optional<Loss> loss = {};
};

/// Two processes that do the same work, and the rows that they give.
struct Contest {
  enum class Program { lockstep, lockstep_mallocs } program = Program::lockstep;
  std::vector<std::string> ours;  ///< arguments
  std::vector<std::string> peer;  ///< script and arguments; empty: ours alone, once
  std::vector<RowPlan> rows;
};

struct ContestOptions {
  int64_t threads = 2;
  std::optional<int64_t> repeats;  ///< instead of each contest's own number
  std::string text;                ///< of the whole training runs; empty: leave those out
  std::string scratch;             ///< a directory for what a run leaves
};
std::vector<Contest> make_contests(const ContestOptions& options);

/// Keeps the rows whose names begin with one of `names` (all of them where it is empty), and the
/// contests that still have any. UsageError for a name that is none.
std::vector<Contest> only(std::vector<Contest> contests, const std::vector<std::string>& names);

}  // namespace lockstep::apps

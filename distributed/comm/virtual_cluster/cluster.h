#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::distributed::virtual_cluster {

/// How a rank's micro-batches differ in time. One random law at most; the two slow-downs come on
/// top of it.
struct Jitter {
  /// Laws of a factor X on a micro-batch's time. All have mean 1, so that `compute` stays the mean
  /// that a person would measure, and only the spread changes:
  ///   lognormal    exp(σZ - σ²/2), Z standard normal, spread = σ; deviation √(exp(σ²) - 1)
  ///   exponential  1 - f + f·E, E exponential of mean 1, spread = f in 0..1; deviation f
  ///   pareto       1 - f + f·(α-1)/α·U^(-1/α), U uniform, α > 1, spread = f in 0..1; deviation
  ///                f/√(α(α-2)) where α > 2, else infinite
  enum class Law { none, lognormal, exponential, pareto };
  Law law = Law::none;
  double spread = 0, alpha = 0;

  /// Of every `period` micro-batches of a rank, `length` in a row take `factor` times as long
  /// (mean 1 + (factor-1)·length/period). Where they fall is drawn for each rank.
  struct Periodic {
    int64_t period = 0, length = 0;  ///< period 0: none
    double factor = 1;
    bool operator==(const Periodic&) const = default;
  } periodic;

  /// With this probability a micro-batch begins with a pause (mean + probability·seconds).
  struct Pause {
    double probability = 0, seconds = 0;
    bool operator==(const Pause&) const = default;
  } pause;

  bool operator==(const Jitter&) const = default;
};

/// Who sends at the same time as others.
enum class Links {
  per_link,  ///< every rank has a full-duplex link of its own to a switch
  shared,    ///< one medium: at any time the senders divide one bandwidth
};
enum class Algorithm { ring, tree };  ///< of collectives; network.h has their costs

struct SlowRank {
  int rank = 0;
  double factor = 1;  ///< its time over that of a nominal rank
  bool operator==(const SlowRank&) const = default;
};

/// A cluster as `--cluster` describes it; the defaults are those of somebody who says nothing.
struct Cluster {
  /// Seconds for forward (a third) and backward (two thirds) of one micro-batch on a nominal rank.
  /// None: to be measured by the program, which then sets it.
  std::optional<double> compute;
  std::vector<SlowRank> slow;  ///< sorted by rank
  Jitter jitter;
  double latency = 20e-6;     ///< seconds that a message takes beside its bytes
  double bandwidth = 1.25e9;  ///< bytes per second
  Links links = Links::per_link;
  double oversubscription = 1;  ///< a switch carries ranks · bandwidth / this
  Algorithm algorithm = Algorithm::ring;
  double server_latency = 20e-6, server_bandwidth = 1.25e9;  ///< of a parameter service's link

  /// Reads `compute=100ms,slow=7:1.3,…`; an empty text is all defaults. UsageError for whatever
  /// does not fit.
  static Cluster parse(const std::string& text);
  /// All keys, in a form that parses to the same cluster, bit for bit.
  std::string to_string() const;
  /// UsageError unless it describes ranks among 0 … ranks-1 only.
  void expect_ranks(int ranks) const;
  /// Of `slow`; 1 for ranks that are not there.
  double factor(int rank) const;

  bool operator==(const Cluster&) const = default;
};

/// What `--cluster help` prints.
std::string cluster_help();

}  // namespace lockstep::distributed::virtual_cluster

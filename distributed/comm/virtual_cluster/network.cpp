#include "distributed/comm/virtual_cluster/network.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/check.h"

namespace lockstep::distributed::virtual_cluster {

/// Adds up rounds of messages; see Note [Cost of communication].
class Network::Rounds {
 public:
  explicit Rounds(const Network& network) : network_(network) {}

  /// So many rounds whose longest message and whose messages together have so many bytes.
  void add(double longest, double all, double times = 1) {
    const Cluster& c = network_.cluster_;
    seconds_ += times * (c.latency + std::max(longest / c.bandwidth, all / network_.capacity_));
    sent_ += times * all;
  }
  Cost cost() const { return {seconds_, sent_ / network_.n_}; }

 private:
  const Network& network_;
  double seconds_ = 0, sent_ = 0;
};

Network::Network(const Cluster& cluster, int ranks) : cluster_(cluster), n_(ranks) {
  check(ranks >= 1, "[distributed.network] expected at least 1 rank, got {}", ranks);
  capacity_ = cluster.links == Links::shared ? cluster.bandwidth
                                             : n_ * cluster.bandwidth / cluster.oversubscription;
}

/// In every round each rank sends a part on to the next; after n-1 rounds every part has been
/// everywhere. The largest part is on some link in all of them.
template <class Part>
void Network::ring(Rounds& rounds, double times, Part part) const {
  double largest = 0, all = 0;
  for (int r = 0; r < n_; ++r) {
    largest = std::max(largest, part(r));
    all += part(r);
  }
  rounds.add(largest, all, times * (n_ - 1));
}

/// Scatter from rank 0, or gather at it: at distance 1, 2, 4, … a rank hands over its subtree.
template <class Part>
void Network::scatter(Rounds& rounds, Part part) const {
  for (int distance = 1; distance < n_; distance *= 2) {
    double longest = 0, all = 0;
    for (int r = distance; r < n_; r += 2 * distance) {
      double subtree = 0;
      for (int i = r; i < std::min(r + distance, n_); ++i) subtree += part(i);
      longest = std::max(longest, subtree);
      all += subtree;
    }
    rounds.add(longest, all);
  }
}

/// Broadcast from rank 0, or reduce to it: at distance 1, 2, 4, … whole buffers change hands.
void Network::spread(Rounds& rounds, double bytes) const {
  for (int distance = 1; distance < n_; distance *= 2)
    rounds.add(bytes, bytes * ((n_ - 1 + distance) / (2 * distance)));
}

Cost Network::all_reduce(int64_t bytes) const {
  Rounds rounds(*this);
  const double all = static_cast<double>(bytes);
  if (cluster_.algorithm == Algorithm::ring) {
    ring(rounds, 2, [&](int) { return all / n_; });
  } else {
    spread(rounds, all);
    spread(rounds, all);
  }
  return rounds.cost();
}

Cost Network::reduce_scatter(std::span<const int64_t> parts) const { return all_gather(parts); }

Cost Network::all_gather(std::span<const int64_t> parts) const {
  check(static_cast<int>(parts.size()) == n_, "[distributed.network] expected {} parts, got {}", n_,
        parts.size());
  Rounds rounds(*this);
  const auto part = [&](int r) { return static_cast<double>(parts[static_cast<size_t>(r)]); };
  if (cluster_.algorithm == Algorithm::ring) {
    ring(rounds, 1, part);
  } else {
    scatter(rounds, part);
    double all = 0;
    for (int r = 0; r < n_; ++r) all += part(r);
    spread(rounds, all);
  }
  return rounds.cost();
}

Cost Network::all_to_all(std::span<const int64_t> bytes) const {
  check(static_cast<int64_t>(bytes.size()) == int64_t{n_} * n_,
        "[distributed.network] expected {} x {} sizes, got {}", n_, n_, bytes.size());
  Rounds rounds(*this);
  for (int shift = 1; shift < n_; ++shift) {
    double longest = 0, all = 0;
    for (int r = 0; r < n_; ++r) {
      const int64_t at = int64_t{r} * n_ + (r + shift) % n_;
      const double message = static_cast<double>(bytes[static_cast<size_t>(at)]);
      longest = std::max(longest, message);
      all += message;
    }
    rounds.add(longest, all);
  }
  return rounds.cost();
}

Cost Network::broadcast(int64_t bytes) const {
  Rounds rounds(*this);
  const double all = static_cast<double>(bytes);
  if (cluster_.algorithm == Algorithm::tree) {
    spread(rounds, all);
  } else {
    const auto part = [&](int) { return all / n_; };
    scatter(rounds, part);
    ring(rounds, 1, part);
  }
  return rounds.cost();
}

Cost Network::barrier() const {
  Rounds rounds(*this);
  rounds.add(0, 0, std::bit_width(static_cast<unsigned>(n_ - 1)));
  return rounds.cost();
}

Cost Network::message(int64_t bytes, int together) const {
  const double m = static_cast<double>(bytes);
  return {cluster_.latency + std::max(m / cluster_.bandwidth, together * m / capacity_), m};
}

Interval Network::transfer(double ready, int64_t bytes, double& busy_until) const {
  const double m = static_cast<double>(bytes);
  // The workers' part of the way, be it a shared medium or a narrow switch, is everybody's, so it
  // is occupied, too.
  const double rate = std::min(cluster_.server_bandwidth, capacity_);
  const double begin = std::max(ready, busy_until);
  busy_until = begin + m / rate;
  return {begin, begin + m / std::min(rate, cluster_.bandwidth) + cluster_.server_latency};
}

Interval Network::push(double now, int64_t bytes, ServerLink& link) const {
  return transfer(now, bytes, link.in_busy_until);
}

Interval Network::answer(double now, int64_t bytes, ServerLink& link) const {
  return transfer(now, bytes, link.out_busy_until);
}

}  // namespace lockstep::distributed::virtual_cluster

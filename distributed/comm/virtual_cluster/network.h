#pragma once
#include <cstdint>
#include <span>

#include "distributed/comm/virtual_cluster/cluster.h"
#include "distributed/comm/virtual_cluster/interval.h"

namespace lockstep::distributed::virtual_cluster {

/// What a collective costs from the moment that all ranks are in it.
struct Cost {
  double seconds = 0;
  double bytes = 0;  ///< sent by a rank, on average over the ranks
};

/// The two directions of a parameter service's link. Each carries one transfer at a time, in the
/// order of the calls, which the caller makes in the order of time.
struct ServerLink {
  double in_busy_until = 0, out_busy_until = 0;  ///< virtual seconds
};

/// Note [Cost of communication]
///
/// A message of m bytes takes α + m/B: latency and bandwidth (Hockney 1994). A rank sends one
/// message and receives one at a time; adding up and copying take no time. Collectives go in
/// rounds. Where the messages of a round add up to M bytes and the longest has m, the round takes
/// α + max(m/B, M/C), C being what the network as a whole carries: n·B/oversubscription through a
/// switch, B on a shared medium. Without either limit, for n ranks, S bytes in all, d = ⌈log2 n⌉:
///
///   algorithm=ring                                                          sent per rank
///     all-reduce      2(n-1) · (α + S/(n·B))                           [1]  2·S·(n-1)/n
///     reduce-scatter  (n-1) · (α + m/B), m the largest part            [2]  S·(n-1)/n
///     all-gather      the same                                         [2]  S·(n-1)/n
///     broadcast       (d + n-1)·α + 2·(n-1)/n · S/B: scatter, all-gather [2]
///   algorithm=tree (binomial, not pipelined: good for short messages)
///     all-reduce      2d · (α + S/B): reduce, broadcast                [3]  2·S·(n-1)/n
///     reduce-scatter  2d·α + (d + (n-1)/n) · S/B: reduce, scatter      [3]
///     all-gather      the same: gather, broadcast                      [3]
///     broadcast       d · (α + S/B)                                    [3]  S·(n-1)/n
///   either
///     all-to-all      Σ over k = 1…n-1 of α + max over r of m(r→r+k)/B [4]  what it sends
///     barrier         d · α: dissemination                             [5]  0
///
/// [1] A reduce-scatter, then an all-gather: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
///     algorithms for clusters of workstations"; bucket all-reduce in [2].
/// [2] Chan, Heimlich, Purkayastha and van de Geijn 2007, "Collective communication: theory,
///     practice, and experience", bucket algorithms and, for broadcast, that for long vectors;
///     Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in
///     MPICH". Unequal parts: the largest goes all the way round and nothing waits for more.
/// [3] Chan et al., minimum spanning trees, for short vectors.
/// [4] Thakur et al., pairwise exchange: in round k rank r sends to r+k and receives from r-k.
/// [5] Hensgen, Finkel and Manber 1988, "Two algorithms for barrier synchronization".
class Network {
 public:
  /// Of `ranks` ranks. A part of them that talks among itself is a network of its own.
  Network(const Cluster& cluster, int ranks);

  Cost all_reduce(int64_t bytes) const;
  /// `parts` are the bytes of the ranks' results; one for each rank.
  Cost reduce_scatter(std::span<const int64_t> parts) const;
  /// `parts` are the bytes that the ranks bring; one for each rank.
  Cost all_gather(std::span<const int64_t> parts) const;
  /// [ranks, ranks] bytes, row r being what rank r sends to each; its own share costs nothing.
  Cost all_to_all(std::span<const int64_t> bytes) const;
  Cost broadcast(int64_t bytes) const;
  Cost barrier() const;
  /// One message, while `together` ranks send one as long (neighbours that exchange: all of them).
  Cost message(int64_t bytes, int together = 1) const;

  /// From a worker to a parameter service, asked for at `now`: waits until the service's link is
  /// free, occupies it for bytes/server-bandwidth (longer where the network as a whole, C above,
  /// carries less) and ends, when the last byte has arrived, after server-latency more (later where
  /// the worker's own link is slower).
  Interval push(double now, int64_t bytes, ServerLink& link) const;
  /// From the service to a worker, in the other direction.
  Interval answer(double now, int64_t bytes, ServerLink& link) const;

 private:
  class Rounds;
  template <class Part>
  void ring(Rounds& rounds, double times, Part part) const;
  template <class Part>
  void scatter(Rounds& rounds, Part part) const;
  void spread(Rounds& rounds, double bytes) const;
  Interval transfer(double ready, int64_t bytes, double& busy_until) const;

  Cluster cluster_;
  int n_;
  double capacity_;  // bytes per second of the network as a whole
};

}  // namespace lockstep::distributed::virtual_cluster

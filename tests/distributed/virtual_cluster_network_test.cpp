// Modelled communication against closed forms, a simulation of every message, and real bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "distributed/comm/launch.h"
#include "distributed/comm/virtual_cluster/network.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

using Sizes = std::vector<int64_t>;

Network network(int ranks, const std::string& text) { return {Cluster::parse(text), ranks}; }
int log2_up(int n) {
  int d = 0;
  while ((1 << d) < n) ++d;
  return d;
}

TEST(KnownFaults, O45_CostOfARingInSpelledOutUnits) {
  const Network ring = network(8, "latency=10us,bandwidth=10Gbit");
  const Cost all = ring.all_reduce(100'000'000);
  EXPECT_DOUBLE_EQ(all.seconds, 0.14014);
  EXPECT_DOUBLE_EQ(all.bytes, 175e6);
  EXPECT_NEAR(1e8 / all.seconds / 1e9, 0.713572, 5e-7);        // algorithm bandwidth, GB/s
  EXPECT_NEAR(all.bytes / all.seconds / 1e9, 1.248751, 5e-7);  // bus bandwidth, GB/s
  const Sizes parts(8, 12'500'000);
  for (const Cost& half : {ring.all_gather(parts), ring.reduce_scatter(parts)}) {
    EXPECT_DOUBLE_EQ(half.seconds, 0.07007);
    EXPECT_DOUBLE_EQ(half.bytes, 87.5e6);
  }
  EXPECT_GE(ring.all_reduce(1).seconds, 140e-6);
  EXPECT_LT(ring.all_reduce(1).seconds, 140.1e-6);
}

TEST(KnownFaults, O45_OneRankCostsNothing) {
  for (const char* text :
       {"algorithm=ring", "algorithm=tree", "links=shared", "oversubscription=4"}) {
    const Network alone = network(1, text);
    for (const Cost& cost :
         {alone.all_reduce(1000), alone.all_gather(Sizes{1000}), alone.reduce_scatter(Sizes{1000}),
          alone.all_to_all(Sizes{1000}), alone.broadcast(1000), alone.barrier()}) {
      EXPECT_EQ(cost.seconds, 0) << text;
      EXPECT_EQ(cost.bytes, 0) << text;
    }
  }
}

/// The backend's counters agree with the model's bytes, summed over the ranks.
TEST(KnownFaults, O45_TheRealBackendMovesAsManyBytes) {
  for (int ranks : {2, 3, 8}) {
    const Network ring = network(ranks, "algorithm=ring"), tree = network(ranks, "algorithm=tree");
    const int64_t n = 48 * ranks, part = 48;
    std::vector<std::vector<int64_t>> moved(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](Communicator& comm) {
      const Tensor whole = full({n}, 1), other = full({n}, 1), piece = full({part}, 1);
      const Sizes counts(static_cast<size_t>(ranks), part);
      const auto count = [&](const WorkPtr& work) {
        work->wait();
        moved[static_cast<size_t>(comm.rank())].push_back(comm.moved_bytes());
      };
      count(comm.all_reduce(whole));
      count(comm.reduce_scatter(piece, whole));
      count(comm.all_gather_v(whole, piece));
      count(comm.all_to_all_v(other, counts, whole, counts));
      count(comm.broadcast(whole, 0));
      comm.barrier();
    });
    const Sizes parts(static_cast<size_t>(ranks), part * 4);
    const Sizes pairs(static_cast<size_t>(ranks * ranks), part * 4);
    const std::vector<Cost> expected = {ring.all_reduce(n * 4), ring.reduce_scatter(parts),
                                        ring.all_gather(parts), ring.all_to_all(pairs),
                                        tree.broadcast(n * 4)};
    double so_far = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      int64_t sum = 0;
      for (const auto& of_rank : moved) sum += of_rank[i];
      so_far += expected[i].bytes * ranks;
      EXPECT_DOUBLE_EQ(so_far, static_cast<double>(sum)) << "operation " << i << ", " << ranks;
    }
  }
}

TEST(Network, ClosedFormsOfRingAndTree) {
  constexpr double kLatency = 1e-3, kBandwidth = 1e6, kBytes = 6000, kTime = kBytes / kBandwidth;
  for (int n : {2, 3, 4, 5, 6, 7, 8, 12, 16, 60, 64}) {
    SCOPED_TRACE(n);
    const double d = log2_up(n), share = (n - 1.0) / n;
    // Equal parts of 6000 bytes for n that divides it, and of whole bytes otherwise.
    const int64_t part = 6000 / n;
    const Sizes parts(static_cast<size_t>(n), part);
    const double parts_time = static_cast<double>(part * n) / kBandwidth;

    const Network ring = network(n, "latency=1ms,bandwidth=1MB,algorithm=ring");
    EXPECT_NEAR(ring.all_reduce(6000).seconds, 2 * (n - 1) * kLatency + 2 * share * kTime, 1e-12);
    EXPECT_NEAR(ring.all_reduce(6000).bytes, 2 * share * kBytes, 1e-9);
    EXPECT_NEAR(ring.all_gather(parts).seconds, (n - 1) * kLatency + share * parts_time, 1e-12);
    EXPECT_NEAR(ring.reduce_scatter(parts).seconds, ring.all_gather(parts).seconds, 0);
    EXPECT_NEAR(ring.broadcast(6000).seconds, (d + n - 1) * kLatency + 2 * share * kTime, 1e-12);

    const Network tree = network(n, "latency=1ms,bandwidth=1MB,algorithm=tree");
    EXPECT_NEAR(tree.all_reduce(6000).seconds, 2 * d * (kLatency + kTime), 1e-12);
    EXPECT_NEAR(tree.all_reduce(6000).bytes, 2 * share * kBytes, 1e-9);
    EXPECT_NEAR(tree.broadcast(6000).seconds, d * (kLatency + kTime), 1e-12);
    EXPECT_NEAR(tree.broadcast(6000).bytes, share * kBytes, 1e-9);
    EXPECT_NEAR(tree.all_gather(parts).seconds, 2 * d * kLatency + (d + share) * parts_time, 1e-12);
    EXPECT_NEAR(tree.reduce_scatter(parts).seconds, tree.all_gather(parts).seconds, 0);

    for (const Network& any : {ring, tree}) {
      EXPECT_NEAR(any.barrier().seconds, d * kLatency, 1e-12);
      EXPECT_EQ(any.barrier().bytes, 0);
      const Sizes pairs(static_cast<size_t>(n * n), 100);
      EXPECT_NEAR(any.all_to_all(pairs).seconds, (n - 1) * (kLatency + 100 / kBandwidth), 1e-12);
      EXPECT_NEAR(any.all_to_all(pairs).bytes, (n - 1) * 100, 1e-9);
      EXPECT_NEAR(any.message(500).seconds, kLatency + 500 / kBandwidth, 1e-15);
      EXPECT_EQ(any.message(500).bytes, 500);
    }
  }
}

/// Every message of a ring of unequal parts: rank r sends part r-k in round k, after what it got.
double simulated_ring(const Sizes& parts, double latency, double bandwidth) {
  const size_t n = parts.size();
  std::vector<double> ready(n, 0), sent(n, 0);
  for (size_t k = 0; k + 1 < n; ++k) {
    std::vector<double> got(n);
    for (size_t r = 0; r < n; ++r) {
      sent[r] = std::max(sent[r], ready[r]) + latency +
                static_cast<double>(parts[(r + n - k) % n]) / bandwidth;
      got[(r + 1) % n] = sent[r];
    }
    ready = got;
  }
  return *std::ranges::max_element(ready);
}

TEST(Network, AllGatherOfUnequalPartsTakesAsLongAsItsMessages) {
  const Network ring = network(5, "latency=1ms,bandwidth=1MB");
  for (const Sizes& parts : {Sizes{100, 100, 100, 100, 100}, Sizes{5000, 0, 0, 0, 0},
                             Sizes{1, 2, 3, 4, 5}, Sizes{10, 4000, 20, 3000, 0}}) {
    EXPECT_NEAR(ring.all_gather(parts).seconds, simulated_ring(parts, 1e-3, 1e6), 1e-12);
    const double all = static_cast<double>(std::accumulate(parts.begin(), parts.end(), int64_t{0}));
    EXPECT_NEAR(ring.all_gather(parts).bytes, all * 4 / 5, 1e-9);
  }
}

TEST(Network, AllToAllWaitsForTheLongestMessageOfEachRound) {
  const Network net = network(3, "latency=1ms,bandwidth=1MB");
  //                 to 0     1     2
  const Sizes bytes = {9999, 100,  200,    // from 0
                       300,  9999, 400,    // from 1
                       500,  600,  9999};  // from 2
  // Round 1: 0→1, 1→2, 2→0; round 2: 0→2, 1→0, 2→1. What stays at home is free.
  EXPECT_NEAR(net.all_to_all(bytes).seconds, 2e-3 + (500 + 600) / 1e6, 1e-15);
  EXPECT_NEAR(net.all_to_all(bytes).bytes, 2100 / 3.0, 1e-9);
}

TEST(Network, OnASharedMediumAllBytesComeOneAfterTheOther) {
  for (const char* algorithm : {"ring", "tree"})
    for (int n : {2, 3, 8}) {
      const std::string text = std::string("latency=0,bandwidth=1MB,algorithm=") + algorithm;
      const Network shared = network(n, text + ",links=shared");
      const Sizes parts(static_cast<size_t>(n), 500);
      const Sizes pairs(static_cast<size_t>(n * n), 40);
      for (const Cost& cost : {shared.all_reduce(4000), shared.all_gather(parts),
                               shared.all_to_all(pairs), shared.broadcast(4000)})
        EXPECT_NEAR(cost.seconds, cost.bytes * n / 1e6, 1e-12);
      EXPECT_NEAR(shared.message(1000, n).seconds, n * 1000 / 1e6, 1e-12);
      EXPECT_NEAR(network(n, text).message(1000, n).seconds, 1000 / 1e6, 1e-12);
    }
  // Latency is per round, not per message.
  EXPECT_NEAR(network(8, "latency=1ms,bandwidth=1MB,links=shared").all_reduce(8).seconds,
              14e-3 + 14 * 8 / 1e6, 1e-12);
}

TEST(Network, OversubscriptionSlowsWhatAllSendAtOnceAndNothingElse) {
  const std::string text = "latency=0,bandwidth=1MB";
  const Network free = network(8, text), narrow = network(8, text + ",oversubscription=4");
  EXPECT_NEAR(narrow.all_reduce(8000).seconds, 4 * free.all_reduce(8000).seconds, 1e-12);
  EXPECT_NEAR(narrow.message(1000).seconds, free.message(1000).seconds, 0);
  EXPECT_NEAR(narrow.message(1000, 2).seconds, free.message(1000).seconds, 0);  // 8/4 at full speed
  EXPECT_NEAR(narrow.message(1000, 8).seconds, 4 * free.message(1000).seconds, 1e-12);
  // A tree's rounds of 4, 2 and 1 messages, of which 2 fit through the switch at a time.
  const Network tree = network(8, text + ",oversubscription=4,algorithm=tree");
  EXPECT_NEAR(tree.broadcast(1000).seconds, (2 + 1 + 1) * 1000 / 1e6, 1e-12);
  EXPECT_EQ(tree.broadcast(1000).bytes, network(8, text + ",algorithm=tree").broadcast(1000).bytes);
}

TEST(Network, TreesWinForShortMessagesAndRingsForLongOnes) {
  const Network ring = network(32, "algorithm=ring"), tree = network(32, "algorithm=tree");
  EXPECT_LT(tree.all_reduce(1000).seconds, ring.all_reduce(1000).seconds);
  EXPECT_GT(tree.all_reduce(100'000'000).seconds, ring.all_reduce(100'000'000).seconds);
}

TEST(ParameterServer, ItsLinkServesOnePushAfterTheOther) {
  const Network net = network(8, "latency=7s,bandwidth=1KB,server-latency=10ms");
  ServerLink link;
  EXPECT_EQ(net.push(1, 1000, link), (Interval{1, 2.01}));
  EXPECT_EQ(net.push(1.5, 1000, link), (Interval{2, 3.01}));  // queues
  EXPECT_EQ(net.push(9, 1000, link), (Interval{9, 10.01}));   // finds it free
  EXPECT_EQ(link.in_busy_until, 10);
  EXPECT_EQ(link.out_busy_until, 0);
  // The other direction is free; a request for an answer takes a latency only.
  EXPECT_EQ(net.answer(0.01, 500, link), (Interval{0.01, 0.01 + 0.5 + 0.01}));
  EXPECT_EQ(net.answer(0.11, 500, link), (Interval{0.51, 0.51 + 0.5 + 0.01}));
  EXPECT_EQ(net.push(20, 0, link), (Interval{20, 20.01}));
  EXPECT_EQ(link.out_busy_until, 1.01);
  EXPECT_EQ(link.in_busy_until, 20);
}

TEST(ParameterServer, NPushesAtOnceTakeNTimesAsLongAsOneUnlessItsLinkIsFaster) {
  for (const auto& [text, last] : {std::pair{"bandwidth=1KB", 8.0},
                                   {"bandwidth=1KB,server-bandwidth=8KB", 7.0 / 8 + 1},
                                   {"bandwidth=1KB,server-bandwidth=8KB,links=shared", 8.0},
                                   {"bandwidth=1KB,server-bandwidth=8KB,oversubscription=4",
                                    7.0 / 2 + 1},  // two at a time fit through the switch
                                   {"bandwidth=1KB,oversubscription=16", 16.0},
                                   {"bandwidth=1KB,oversubscription=4", 8.0},
                                   {"bandwidth=1MB,server-bandwidth=1KB", 8.0}}) {
    const Network net = network(8, std::string("latency=0,") + text);
    ServerLink link;
    Interval push;
    for (int worker = 0; worker < 8; ++worker) push = net.push(0, 1000, link);
    EXPECT_DOUBLE_EQ(push.end, last) << text;
  }
}

TEST(Network, SizesThatDoNotFitTheRanksAreRefused) {
  const Network net = network(3, "");
  EXPECT_EQ(test::error_of([&] {
              (void)net.all_gather(Sizes{1, 2});
            }),
            "[distributed.network] expected 3 parts, got 2");
  EXPECT_EQ(test::error_of([&] { (void)net.all_to_all(Sizes(8, 1)); }),
            "[distributed.network] expected 3 x 3 sizes, got 8");
  EXPECT_THROW(network(0, ""), UsageError);
}

}  // namespace
}  // namespace lockstep::distributed::virtual_cluster

// What each verb does, on `threads` and `virtual` with 1 to 4 ranks and on `solo`.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "distributed/comm/launch.h"

namespace lockstep::distributed {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

class Collectives : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  int n() const { return std::get<1>(GetParam()); }
  void run(const RankFunction& function) const {
    run_ranks(n(), {.backend = std::get<0>(GetParam())}, function);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         testing::Combine(testing::Values("threads", "virtual"),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

// Σ over ranks of f(rank)
template <class F>
auto over(int n, F f) {
  auto sum = f(0);
  for (int r = 1; r < n; ++r) sum += f(r);
  return sum;
}

TEST_P(Collectives, AllReduceSumsOnEveryRank) {
  run([&](Communicator& comm) {
    for (int64_t numel : {0, 1, 3, 16, 17, 1000, 100'003}) {
      Floats x(static_cast<size_t>(numel));
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i % 97) + 100.0f * comm.rank();
      Tensor t = from_values(x);
      comm.all_reduce(t)->wait();
      const Floats got = values(t);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(got[i], over(n(), [&](int r) { return float(i % 97) + 100.0f * r; })) << i;
    }
  });
}

TEST_P(Collectives, AllReduceFoldsInRankOrder) {
  // Values whose sum depends on the order of additions; expected: successive additions.
  run([&](Communicator& comm) {
    const float all[] = {1e8f, 1.0f, -1e8f, 3.0f};
    Tensor t = full({1000}, all[comm.rank()]);
    comm.all_reduce(t)->wait();
    float expected = all[0];
    for (int r = 1; r < n(); ++r) expected += all[r];
    EXPECT_EQ(values(t), Floats(1000, expected));
  });
}

TEST_P(Collectives, MaxAndMinKeepNaN) {
  run([&](Communicator& comm) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Tensor t =
        from_values(Floats{float(comm.rank()), -float(comm.rank()), comm.rank() == 0 ? nan : 1});
    comm.all_reduce(t, {.op = ReduceOp::max})->wait();
    EXPECT_EQ(values(t)[0], float(n() - 1));
    EXPECT_EQ(values(t)[1], 0.0f);
    EXPECT_TRUE(std::isnan(values(t)[2]));
    Tensor u = from_values(std::vector<uint8_t>{uint8_t(comm.rank()), 200});
    comm.all_reduce(u, {.op = ReduceOp::min})->wait();
    EXPECT_EQ(values<uint8_t>(u), (std::vector<uint8_t>{0, 200}));
  });
}

TEST_P(Collectives, LowPrecisionIsAddedInF32AndRoundedOnce) {
  // 2048 + 1 is a tie in f16 and rounds back to 2048: added in f16 nothing is ever gained.
  run([&](Communicator& comm) {
    const float mine = comm.rank() == 0 ? 2048.0f : 1.0f;
    Tensor wide = full({33}, mine, DType::f16), narrow = full({33}, mine, DType::f16);
    comm.all_reduce(wide)->wait();
    comm.all_reduce(narrow, {.reduce_in = ReduceIn::wire})->wait();
    EXPECT_EQ(static_cast<float>(values<half>(wide)[32]), float(half(2048.0f + float(n() - 1))));
    EXPECT_EQ(static_cast<float>(values<half>(narrow)[32]), 2048.0f);
  });
}

TEST_P(Collectives, FactorsApplyBeforeAndAfterTheSum) {
  run([&](Communicator& comm) {
    Tensor t = full({5}, 30720, DType::f16);  // the plain sum of three does not fit f16
    comm.all_reduce(t, {.reduce_in = ReduceIn::wire, .pre = 0.25f, .post = 0.5f})->wait();
    EXPECT_EQ(static_cast<float>(values<half>(t)[0]), 3840.0f * n());
    Tensor u = full({5}, 3);
    comm.all_reduce(u, {.pre = 4, .post = 2})->wait();
    EXPECT_EQ(values(u), Floats(5, 24.0f * n()));
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPart) {
  run([&](Communicator& comm) {
    const std::vector<int64_t> all = {3, 0, 5, 2};
    const std::vector<int64_t> counts(all.begin(), all.begin() + n());
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t begin = std::accumulate(counts.begin(), counts.begin() + comm.rank(), int64_t{0});
    Floats x(static_cast<size_t>(total));
    std::iota(x.begin(), x.end(), 10.0f * comm.rank());
    Tensor in = from_values(x), out = Tensor::empty({counts[comm.rank()]});
    comm.reduce_scatter(out, in, counts)->wait();
    for (int64_t i = 0; i < counts[comm.rank()]; ++i)
      EXPECT_EQ(values(out)[i], over(n(), [&](int r) { return float(begin + i) + 10.0f * r; }));
    EXPECT_EQ(values(in), x);  // the inputs stay
    Tensor even = full({2}, 0), ones = full({2 * n()}, 1);
    comm.reduce_scatter(even, ones)->wait();
    EXPECT_EQ(values(even), Floats(2, float(n())));
  });
}

TEST_P(Collectives, AllGatherConcatenatesUnequalParts) {
  run([&](Communicator& comm) {
    std::vector<int64_t> counts;
    Ints expected;
    for (int r = 0; r < n(); ++r) {
      counts.push_back((r + 1) % 3);  // 1, 2, 0, 1
      expected.insert(expected.end(), static_cast<size_t>(counts.back()), 7 + r);
    }
    Tensor in = full({counts[comm.rank()]}, 7 + comm.rank(), DType::i32);
    Tensor out = full({static_cast<int64_t>(expected.size())}, -1, DType::i32);
    comm.all_gather_v(out, in, counts)->wait();
    EXPECT_EQ(values<int32_t>(out), expected);
    EXPECT_EQ(values<int32_t>(in), Ints(static_cast<size_t>(counts[comm.rank()]), 7 + comm.rank()));
  });
}

TEST_P(Collectives, AllGatherWorksInPlace) {
  run([&](Communicator& comm) {
    Tensor out = full({2 * n()}, -1);
    Tensor in = out.slice(2 * comm.rank(), 2 * comm.rank() + 2);
    in.mutable_data<float>()[0] = in.mutable_data<float>()[1] = float(comm.rank());
    comm.all_gather_v(out, in)->wait();
    for (int r = 0; r < n(); ++r) EXPECT_EQ(values(out)[2 * r + 1], float(r));
  });
}

TEST_P(Collectives, AllToAllSendsEachRankItsPart) {
  run([&](Communicator& comm) {
    const int me = comm.rank();
    std::vector<int64_t> send, receive;  // r sends s elements (r + 2s) % 3 times
    Floats in, expected;
    for (int r = 0; r < n(); ++r) {
      send.push_back((me + 2 * r) % 3);
      in.insert(in.end(), static_cast<size_t>(send.back()), 10.0f * me + r);
      receive.push_back((r + 2 * me) % 3);
      expected.insert(expected.end(), static_cast<size_t>(receive.back()), 10.0f * r + me);
    }
    Tensor out = full({static_cast<int64_t>(expected.size())}, -1);
    comm.all_to_all_v(out, receive, from_values(in), send)->wait();
    EXPECT_EQ(values(out), expected);
  });
}

TEST_P(Collectives, BroadcastCopiesTheRootAndNothingElse) {
  run([&](Communicator& comm) {
    for (int root = 0; root < n(); ++root) {
      Tensor t = full({100}, 10.0 * comm.rank() + root);
      comm.broadcast(t, root)->wait();
      EXPECT_EQ(values(t), Floats(100, 11.0f * root));
    }
  });
}

TEST_P(Collectives, SendReceivePassesAroundTheRing) {
  run([&](Communicator& comm) {
    const int next = (comm.rank() + 1) % n(), previous = (comm.rank() + n() - 1) % n();
    Tensor in = full({8}, comm.rank()), out = full({8}, -1);
    comm.send_recv(out, previous, in, next)->wait();
    EXPECT_EQ(values(out), Floats(8, float(previous)));
    if (n() == 1) return;
    // Rank 0 sends to 1, the others have no partner.
    const int me = comm.rank();
    comm.send_recv(out, me == 1 ? 0 : kNobody, in, me == 0 ? 1 : kNobody)->wait();
    EXPECT_EQ(values(out), Floats(8, me == 1 ? 0.0f : float(previous)));
  });
}

TEST_P(Collectives, SplitMakesIndependentGroupsInKeyOrder) {
  run([&](Communicator& comm) {
    // Even and odd ranks; within a group the order is reversed by the key.
    auto part = comm.split(comm.rank() % 2, -comm.rank());
    const int peers = (n() - comm.rank() % 2 + 1) / 2;
    ASSERT_EQ(part->size(), peers);
    EXPECT_EQ(part->rank(), peers - 1 - comm.rank() / 2);
    Tensor t = full({3}, comm.rank());
    part->all_reduce(t)->wait();
    float expected = 0;
    for (int r = comm.rank() % 2; r < n(); r += 2) expected += float(r);
    EXPECT_EQ(values(t), Floats(3, expected));
    // Nobody but rank 0 is in this one.
    auto alone = comm.split(comm.rank() == 0 ? 5 : kNobody);
    EXPECT_EQ(alone != nullptr, comm.rank() == 0);
    comm.barrier();
  });
}

TEST_P(Collectives, ManyOperationsMayBeOnTheirWay) {
  run([&](Communicator& comm) {
    std::vector<Tensor> xs;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 1000; ++i) {  // more than the ring of slots
      xs.push_back(full({7}, i + comm.rank()));
      works.push_back(comm.all_reduce(xs.back()));
    }
    for (int i = 999; i >= 0; --i) works[static_cast<size_t>(i)]->wait();
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(values(xs[static_cast<size_t>(i)])[3],
                over(n(), [&](int r) { return float(i + r); }));
  });
}

TEST_P(Collectives, CountedBytesAreMovedBytes) {
  std::vector<double> counted(static_cast<size_t>(n()));
  std::vector<int64_t> moved(static_cast<size_t>(n()));
  run([&](Communicator& comm) {
    Tensor x = full({1003}, 1), small = full({1}, 1);
    std::vector<int64_t> counts;
    for (int r = 0; r < n(); ++r) counts.push_back(10 * r + 1);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t own = counts[comm.rank()];
    Tensor all = full({total}, 0), part = full({own}, 1);
    Tensor from_all = full({own * n()}, 0);
    const std::vector<int64_t> equal(static_cast<size_t>(n()), own);
    comm.all_reduce(x)->wait();
    comm.all_reduce(small)->wait();
    comm.all_gather_v(all, part, counts)->wait();
    comm.reduce_scatter(part, all, counts)->wait();
    comm.broadcast(x, n() - 1)->wait();
    comm.all_to_all_v(from_all, equal, all, counts)->wait();
    comm.send_recv(small, (comm.rank() + 1) % n(), x.slice(0, 1), (comm.rank() + n() - 1) % n())
        ->wait();
    counted[comm.rank()] = comm.stats().total().wire_bytes;
    moved[comm.rank()] = comm.moved_bytes();
  });
  EXPECT_NEAR(std::accumulate(counted.begin(), counted.end(), 0.0),
              double(std::accumulate(moved.begin(), moved.end(), int64_t{0})), 1e-6);
}

TEST(Solo, EveryVerbWorksAlone) {
  run_ranks(1, {.backend = "solo"}, [](Communicator& comm) {
    EXPECT_EQ(comm.backend_name(), "solo");
    Tensor x = full({4}, 3), y = full({4}, 0);
    comm.all_reduce(x, {.op = ReduceOp::mean, .pre = 0.5f})->wait();
    EXPECT_EQ(values(x), Floats(4, 1.5f));
    comm.all_gather_v(y, x)->wait();
    EXPECT_EQ(values(y), Floats(4, 1.5f));
    comm.broadcast(y, 0)->wait();
    comm.barrier();
    EXPECT_EQ(comm.split(3)->size(), 1);
    EXPECT_EQ(comm.split(kNobody), nullptr);
    EXPECT_EQ(comm.stats()[Verb::all_reduce].calls, 1);
    EXPECT_EQ(comm.stats().total().wire_bytes, 0);
    comm.abort("enough");
    EXPECT_THROW(comm.all_reduce(x), SystemError);
  });
  EXPECT_THROW(run_ranks(2, {.backend = "solo"}, [](Communicator&) {}), UsageError);
}

TEST(Stats, CountCallsBytesAndTime) {
  run_ranks(2, [](Communicator& comm) {
    Tensor x = full({1000}, 1);
    for (int i = 0; i < 3; ++i) comm.all_reduce(x)->wait();
    comm.broadcast(x, 0)->wait();
    const CommStats stats = comm.stats();
    EXPECT_EQ(stats[Verb::all_reduce].calls, 3);
    EXPECT_EQ(stats[Verb::all_reduce].payload_bytes, 12'000);
    EXPECT_DOUBLE_EQ(stats[Verb::all_reduce].wire_bytes, 12'000);  // 2·(n-1)/n = 1
    EXPECT_EQ(stats[Verb::broadcast].calls, 1);
    EXPECT_GT(stats.comm_s, 0);
    EXPECT_GT(stats.exposed_s, 0);
    comm.reset_stats();
    EXPECT_EQ(comm.stats().total().calls, 0);
    EXPECT_EQ(comm.stats().comm_s, 0);
  });
}

TEST(Recorder, KeepsTheLastOperations) {
  run_ranks(2, [](Communicator& comm) {
    Tensor x = full({1 << 20}, 1);
    for (int i = 0; i < 99; ++i) comm.barrier();
    comm.set_phase({"backward of step", 612});
    comm.all_reduce(x, {.tag = {"bucket", 3}})->wait();
    const FlightRecorder& recorder = comm.recorder();
    EXPECT_EQ(recorder.posted(), 100);
    EXPECT_EQ(recorder.find(36), nullptr);
    ASSERT_NE(recorder.find(37), nullptr);
    EXPECT_EQ(recorder.find(100)->state, FlightRecorder::Entry::State::finished);
    const std::string text = recorder.text();
    EXPECT_NE(text.find("all_reduce #100 (bucket 3, 4.0 MiB), backward of step 612, finished"),
              std::string::npos)
        << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), FlightRecorder::kKept);
  });
}

TEST(Arguments, AreCheckedBeforeAnythingIsSent) {
  run_ranks(2, [](Communicator& comm) {
    Tensor f = full({4}, 1), i = full({4}, 1, DType::i32), u = full({4}, 1, DType::u8);
    EXPECT_THROW(comm.all_reduce(f, {.pre = 3}), UsageError);
    EXPECT_THROW(comm.all_reduce(i, {.post = 2}), UsageError);
    EXPECT_THROW(comm.all_reduce(u), UsageError);
    EXPECT_THROW(comm.broadcast(f, 2), UsageError);
    EXPECT_THROW(comm.all_gather_v(f, f), UsageError);
    EXPECT_THROW(comm.reduce_scatter(f, i), UsageError);
    const std::vector<int64_t> wrong = {4, 4, 4};
    EXPECT_THROW(comm.reduce_scatter(f, f, wrong), UsageError);
    EXPECT_THROW(comm.split(-2), UsageError);
    EXPECT_EQ(comm.stats().total().calls, 0);
    comm.barrier();  // all is well
  });
  EXPECT_THROW(run_ranks(0, [](Communicator&) {}), UsageError);
  EXPECT_THROW(run_ranks(2, {.backend = "carrier_pigeon"}, [](Communicator&) {}), UsageError);
}

TEST(KnownFaults, O32_AveragesReduceAndMismatchedShapes) {
  run_ranks(3, [](Communicator& comm) {
    const int r = comm.rank();
    Tensor x = full({5}, r + 1.0f);
    comm.all_reduce(x, {.op = ReduceOp::mean})->wait();
    EXPECT_EQ(values(x), Floats(5, 2.0f));
    Tensor a = from_values(Ints{7 + r, r < 2 ? 1 : 2});
    comm.all_reduce(a, {.op = ReduceOp::mean})->wait();
    EXPECT_EQ(values<int32_t>(a), (Ints{8, 1}));  // (1 + 1 + 2) / 3 is cut towards zero
    Tensor b = full({1}, r < 2 ? -1 : -3, DType::i64);
    comm.all_reduce(b, {.op = ReduceOp::mean})->wait();
    EXPECT_EQ(values<int64_t>(b), std::vector<int64_t>{-1});  // -5 / 3
    // No verb reduces to one rank; what comes nearest leaves the inputs of the others alone.
    Tensor in = full({3}, r + 1), out = full({r == 0 ? 3 : 0}, 0);
    comm.reduce_scatter(out, in, std::vector<int64_t>{3, 0, 0})->wait();
    EXPECT_EQ(values(in), Floats(3, r + 1.0f));
    if (r == 0) {
      EXPECT_EQ(values(out), Floats(3, 6.0f));
    }
    Tensor gathered = full({9}, 0);
    comm.all_gather_v(gathered, in)->wait();
    EXPECT_EQ(values(in), Floats(3, r + 1.0f));
  });
  // The mismatches are in faults_test.cpp.
}

}  // namespace
}  // namespace lockstep::distributed

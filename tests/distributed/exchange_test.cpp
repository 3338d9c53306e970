// Sums over ranks on wires of every dtype: where they are rounded, divided, staged and looked at.
#include "distributed/exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "core/kernels/elementwise.h"
#include "distributed/comm/launch.h"
#include "precision.h"

namespace lockstep::distributed {
namespace {

using namespace std::chrono_literals;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLeastHalf = 0x1p-24f;  // the smallest positive f16

optim::FlatView range_of(const Tensor& grad) {
  return {.param = Tensor::empty(grad.shape()), .grad = grad};
}

// What a rank reads as the average over ranks of `mine(rank)`, and whether the sum overflowed.
template <class F>
std::pair<Floats, bool> average(int ranks, const ExchangeOptions& options, DType gradient, F mine) {
  std::vector<Floats> got(static_cast<size_t>(ranks));
  std::atomic<int> overflows{0};
  run_ranks(ranks, [&](Communicator& comm) {
    Exchange exchange(comm, options, gradient);
    const Tensor grad = full({5}, mine(comm.rank()), gradient);
    exchange.sum(range_of(grad), {"test", 0})->wait();
    overflows += exchange.take_overflow();
    EXPECT_FALSE(exchange.take_overflow());  // only once
    for (float x : floats(grad))
      got[comm.rank()].push_back(static_cast<float>(x / exchange.factor() / ranks));
  });
  for (const Floats& other : got) EXPECT_EQ(other, got[0]);
  EXPECT_TRUE(overflows == 0 || overflows == ranks) << overflows;
  EXPECT_EQ(got[0], Floats(5, got[0][0]));
  return {got[0], overflows != 0};
}
float average_of_equal(int ranks, const ExchangeOptions& options, DType gradient, float x) {
  return average(ranks, options, gradient, [x](int) { return x; }).first[0];
}

TEST(Exchange, SumsComeBackTimesTheFactorOnEveryWire) {
  for (int ranks : {1, 2, 3, 4})
    for (DType gradient : kFloating)
      for (const ExchangeOptions& options : all_exchanges()) {
        SCOPED_TRACE(describe(options) + " of " + std::string(name_of(gradient)));
        run_ranks(ranks, [&](Communicator& comm) {
          Exchange exchange(comm, options, gradient);
          for (int64_t numel : {0, 1, 17, 1000}) {
            Floats mine(static_cast<size_t>(numel)), sum = mine;
            for (size_t i = 0; i < mine.size(); ++i)
              for (int r = 0; r < ranks; ++r) {  // sums of at most 7 bits: exact everywhere
                const float x = 4.0f * static_cast<float>(i % 7) - 4.0f * static_cast<float>(r);
                sum[i] += x;
                if (r == comm.rank()) mine[i] = x;
              }
            const Tensor grad = in_dtype(from_values(mine), gradient);
            const WorkPtr work = exchange.sum(range_of(grad), {"test", numel});
            work->wait();
            EXPECT_TRUE(work->done());
            EXPECT_EQ(work->error(), nullptr);
            Floats got = floats(grad);
            for (float& x : got) x = static_cast<float>(x / exchange.factor());
            EXPECT_EQ(got, sum);
            EXPECT_FALSE(exchange.take_overflow());
          }
        });
      }
}

TEST(Exchange, FactorsArePowersOfTwoAsDocumented) {
  const auto factor = [](int ranks, Divide divide, ReduceIn reduce_in = ReduceIn::f32,
                         DType wire = DType::f16, DType gradient = DType::f32) {
    double got = 0;
    run_ranks(ranks, [&](Communicator& comm) {
      const Exchange exchange(comm, {.wire = wire, .reduce_in = reduce_in, .divide = divide},
                              gradient);
      if (comm.rank() == 0) got = exchange.factor();
    });
    return got;
  };
  const double one_over[] = {0, 1, 2, 4, 4, 8};  // by number of ranks
  for (int n = 1; n <= 5; ++n) {
    for (Divide divide : {Divide::before, Divide::after, Divide::split, Divide::automatic})
      EXPECT_EQ(factor(n, divide), 1 / one_over[n]) << n;
    EXPECT_EQ(factor(n, Divide::automatic, ReduceIn::wire), 1 / one_over[n]);
    EXPECT_EQ(factor(n, Divide::none), 1);
    // Where there is no f16, nothing is divided.
    for (DType wire : {DType::f32, DType::bf16})
      for (DType gradient : {DType::f32, DType::bf16})
        EXPECT_EQ(factor(n, Divide::automatic, ReduceIn::f32, wire, gradient), 1);
    EXPECT_EQ(factor(n, Divide::automatic, ReduceIn::f32, DType::f32, DType::f16), 1 / one_over[n]);
  }
}

TEST(KnownFaults, O11_SumInF32NeitherOverflowsNorVanishes) {
  for (int ranks : {2, 3, 4})
    for (DType gradient : {DType::f32, DType::f16}) {
      const ExchangeOptions options{.wire = DType::f16};
      const float large = average_of_equal(ranks, options, gradient, 30000);
      const float small = average_of_equal(ranks, options, gradient, kLeastHalf);
      if (ranks == 3) {  // 3/4 of it is rounded to the wire: within half a unit, and not 0
        EXPECT_NEAR(large, 30000, 30000 * 0x1p-11);
        EXPECT_FLOAT_EQ(small, kLeastHalf * 4 / 3);
      } else {
        EXPECT_EQ(large, 30000);
        EXPECT_EQ(small, kLeastHalf);
      }
    }
}

TEST(KnownFaults, O11_SumInTheWiresTypeDoesNotOverflowByDefault) {
  for (int ranks : {2, 3, 4, 8})
    for (DType gradient : {DType::f32, DType::f16}) {
      const ExchangeOptions options{.wire = DType::f16, .reduce_in = ReduceIn::wire};
      const auto [large, overflowed] =
          average(ranks, options, gradient, [](int) { return 30000.0f; });
      EXPECT_FALSE(overflowed);
      if (ranks == 2 || ranks == 4)
        EXPECT_EQ(large[0], 30000);
      else  // sums on the way are rounded
        EXPECT_NEAR(large[0], 30000, 30000 * 0x1p-10);
      // The documented price: 2^-24 halved is a tie, and goes to 0.
      EXPECT_EQ(average_of_equal(ranks, options, gradient, kLeastHalf), 0);
    }
}

TEST(KnownFaults, O11_TheNaiveChoicesGoWrongAsDocumented) {
  const auto options = [](Divide divide, ReduceIn reduce_in) {
    return ExchangeOptions{.wire = DType::f16, .reduce_in = reduce_in, .divide = divide};
  };
  for (DType gradient : {DType::f32, DType::f16}) {
    const auto large = [&](Divide divide, ReduceIn in) {
      return average(4, options(divide, in), gradient, [](int) { return 30000.0f; });
    };
    const auto small = [&](Divide divide, ReduceIn in) {
      return average_of_equal(4, options(divide, in), gradient, kLeastHalf);
    };
    for (ReduceIn in : {ReduceIn::f32, ReduceIn::wire}) {
      EXPECT_EQ(large(Divide::none, in), std::pair(Floats(5, kInf), true));
      EXPECT_EQ(small(Divide::none, in), kLeastHalf);
      EXPECT_EQ(large(Divide::before, in), std::pair(Floats(5, 30000.0f), false));
      EXPECT_EQ(small(Divide::before, in), 0);
    }
    EXPECT_EQ(large(Divide::after, ReduceIn::wire), std::pair(Floats(5, kInf), true));
    EXPECT_EQ(large(Divide::after, ReduceIn::f32), std::pair(Floats(5, 30000.0f), false));
    EXPECT_EQ(small(Divide::after, ReduceIn::f32), kLeastHalf);
  }
  // Added in the wire's type, what is small beside the sum so far is lost: 2048 + 1 + 1 + 1.
  const auto mixed = [](int rank) { return rank == 0 ? 2048.0f : 1.0f; };
  const auto sum = [&](ReduceIn in) {
    return 4 * average(4, options(Divide::none, in), DType::f32, mixed).first[0];
  };
  EXPECT_EQ(sum(ReduceIn::wire), 2048);
  EXPECT_EQ(sum(ReduceIn::f32), 2052);  // 2051, rounded once
}

TEST(Exchange, Bf16HasTheRangeOfF32AndFewDigits) {
  const ExchangeOptions bf16{.wire = DType::bf16};
  EXPECT_EQ(average_of_equal(4, bf16, DType::f32, 0x1p120f), 0x1p120f);
  EXPECT_EQ(average_of_equal(4, bf16, DType::f32, 0x1p-120f), 0x1p-120f);
  EXPECT_EQ(average_of_equal(2, bf16, DType::f32, 1.0f + 0x1p-9f), 1);  // 8 bits of precision
  const auto mixed = [](int rank) { return rank == 0 ? 256.0f : 1.0f; };
  EXPECT_EQ(4 * average(4, bf16, DType::f32, mixed).first[0], 260);  // 259 is between 258 and 260
  EXPECT_EQ(4 * average(4, {.wire = DType::bf16, .reduce_in = ReduceIn::wire}, DType::f32, mixed)
                    .first[0],
            256);
}

TEST(Exchange, OneRankAloneHasAWireThatRounds) {
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(average_of_equal(1, {.wire = DType::f16}, DType::f32, x), 1);
  EXPECT_EQ(average_of_equal(1, {.wire = DType::bf16}, DType::f32, x), 1);
  EXPECT_EQ(average_of_equal(1, {.wire = DType::f32}, DType::f32, x), x);
  EXPECT_EQ(average(1, {.wire = DType::f16}, DType::f32, [](int) { return 70000.0f; }),
            std::pair(Floats(5, kInf), true));
}

TEST(Exchange, ABufferNarrowerThanTheWireCanOverflow) {
  const auto large = [](int) { return 30000.0f; };
  for (DType wire : {DType::f32, DType::bf16}) {
    EXPECT_TRUE(average(4, {.wire = wire, .divide = Divide::none}, DType::f16, large).second);
    EXPECT_FALSE(average(4, {.wire = wire}, DType::f16, large).second);
  }
  EXPECT_EQ(average_of_equal(4, {.wire = DType::f32}, DType::f16, 30000), 30000);
}

// Remembers what it saw.
class Recorder final : public GradientObserver {
 public:
  struct Sight {
    GradientStage stage;
    DType dtype;
    Floats values;
    bool in_place;
    bool operator==(const Sight&) const = default;
  };
  void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) override {
    sights.push_back({stage, values.dtype(), floats(values), values.same_storage(range.grad)});
  }
  std::vector<Sight> sights;
};

TEST(Exchange, ObserversSeeTheWireAndTheSum) {
  const auto sights = [](const ExchangeOptions& options, DType gradient) {
    std::vector<Recorder::Sight> of_rank_1;
    run_ranks(2, [&](Communicator& comm) {
      Exchange exchange(comm, options, gradient);
      Recorder recorder;
      exchange.observe(&recorder);
      // 2^-26 vanishes in f16.
      const Tensor grad =
          in_dtype(from_values<float>({comm.rank() == 0 ? 3.0f : 5.0f, 0x1p-26f}), gradient);
      exchange.sum(range_of(grad), {"test", 0})->wait();
      if (comm.rank() == 1) of_rank_1 = recorder.sights;
      exchange.observe(nullptr);
      exchange.sum(range_of(grad), {"test", 1})->wait();
      EXPECT_EQ(recorder.sights.size(), 2u);
    });
    return of_rank_1;
  };
  using Sights = std::vector<Recorder::Sight>;
  EXPECT_EQ(sights({}, DType::f32),
            (Sights{{GradientStage::wire, DType::f32, {5, 0x1p-26f}, true},
                    {GradientStage::reduced, DType::f32, {8, 0x1p-25f}, true}}));
  EXPECT_EQ(sights({.wire = DType::f16}, DType::f32),  // divided by 2 after the sum
            (Sights{{GradientStage::wire, DType::f16, {5, 0}, false},
                    {GradientStage::reduced, DType::f32, {4, 0}, true}}));
  EXPECT_EQ(sights({.wire = DType::f16, .divide = Divide::before}, DType::f32),
            (Sights{{GradientStage::wire, DType::f16, {2.5f, 0}, false},
                    {GradientStage::reduced, DType::f32, {4, 0}, true}}));
  EXPECT_EQ(sights({.wire = DType::bf16}, DType::bf16),
            (Sights{{GradientStage::wire, DType::bf16, {5, 0x1p-26f}, true},
                    {GradientStage::reduced, DType::bf16, {8, 0x1p-25f}, true}}));
}

TEST(Exchange, HalfTheBytesCrossOnATwoByteWire) {
  const auto wire_bytes = [](DType wire) {
    double bytes = 0;
    run_ranks(2, [&](Communicator& comm) {
      Exchange exchange(comm, {.wire = wire}, DType::f32);
      exchange.sum(range_of(full({1024}, 1)), {"test", 0})->wait();
      EXPECT_EQ(comm.stats().total().wire_bytes, static_cast<double>(comm.moved_bytes()));
      if (comm.rank() == 0) bytes = comm.stats().total().wire_bytes;
    });
    return bytes;
  };
  EXPECT_EQ(wire_bytes(DType::f32), 4096);
  EXPECT_EQ(wire_bytes(DType::f16), 2048);
  EXPECT_EQ(wire_bytes(DType::bf16), 2048);
}

TEST(Exchange, TheStagingCopyLivesAsLongAsTheWork) {
  run_ranks(1, [](Communicator& comm) {
    Exchange exchange(comm, {.wire = DType::f16}, DType::f32);
    const optim::FlatView range = range_of(full({1 << 20}, 1));
    const int64_t before = host_allocator().stats().live;
    const WorkPtr work = exchange.sum(range, {"test", 0});
    EXPECT_GE(host_allocator().stats().live, before + (1 << 21));
    work->wait();
    EXPECT_LT(host_allocator().stats().live, before + (1 << 16));  // though the work is still there
  });
}

TEST(Exchange, AWorkOnItsWayIsAWorkLikeAnyOther) {
  std::atomic<bool> looked{false};
  run_ranks(2, [&](Communicator& comm) {
    Exchange exchange(comm, {.wire = DType::f16}, DType::f32);
    const Floats before(100, 3.0f + 0x1p-12f);
    const Tensor grad = from_values(before);
    while (comm.rank() == 1 && !looked) std::this_thread::yield();
    const WorkPtr work = exchange.sum(range_of(grad), {"test", 0});
    if (comm.rank() == 0) {
      EXPECT_FALSE(work->done());
      EXPECT_FALSE(work->wait_for(2ms));
      EXPECT_EQ(work->error(), nullptr);
      EXPECT_EQ(values(grad), before);
      looked = true;
    }
    while (!work->done()) std::this_thread::yield();
    EXPECT_EQ(values(grad), Floats(100, 3));  // 6, halved
    EXPECT_TRUE(work->wait_for(0ms));
    work->wait();
    EXPECT_EQ(values(grad), Floats(100, 3));  // written once
  });
}

TEST(Faults, AFailedExchangeWritesNothingAndNamesTheLateRank) {
  for (DType wire : {DType::f16, DType::bf16}) {
    std::vector<std::string> texts(3);
    run_ranks(3, {.timeout = 300ms}, [&](Communicator& comm) {
      Exchange exchange(comm, {.wire = wire}, DType::f32);
      const Tensor grad = full({1000}, 1.0f + 0x1p-12f);
      try {
        if (comm.rank() == 2) std::this_thread::sleep_for(700ms);
        const WorkPtr work = exchange.sum(range_of(grad), {"bucket", 3});
        EXPECT_FALSE(work->done());
        EXPECT_FALSE(work->wait_for(5ms));
        EXPECT_EQ(work->error(), nullptr);
        EXPECT_THROW(work->wait(), SystemError);
        EXPECT_TRUE(work->done());
        EXPECT_NE(work->error(), nullptr);
        work->wait();
      } catch (const SystemError& e) {
        EXPECT_EQ(e.fault(), Fault::communication);
        EXPECT_EQ(e.site().rank, 2);
        texts[comm.rank()] = e.what();
      }
      EXPECT_EQ(values(grad), Floats(1000, 1.0f + 0x1p-12f));
    });
    for (const std::string& text : texts)
      EXPECT_NE(text.find("rank 2 of 3 did not arrive at all_reduce #1 (bucket 3, 2.0 KiB)"),
                std::string::npos)
          << text;
  }
}

TEST(Faults, ARankThatDiesDuringAnExchangeEndsIt) {
  std::vector<Floats> after(2);
  std::string text;
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& comm) {
                           Exchange exchange(comm, {.wire = DType::f16}, DType::f32);
                           const Tensor grad = full({1 << 16}, 1.0f + 0x1p-12f);
                           if (comm.rank() == 1) throw std::domain_error("no more");
                           try {
                             exchange.sum(range_of(grad), {"bucket", 0})->wait();
                           } catch (const SystemError& e) {
                             text = e.what();
                             after[0] = values(grad);
                           }
                         }),
               std::domain_error);
  EXPECT_NE(text.find("rank 1 of 2 failed: no more"), std::string::npos) << text;
  EXPECT_EQ(after[0], Floats(1 << 16, 1.0f + 0x1p-12f));
}

TEST(Faults, UnequalRangesAreAnErrorOnAllRanks) {
  run_ranks(2, {.timeout = 10s}, [](Communicator& comm) {
    Exchange exchange(comm, {.wire = DType::f16}, DType::f32);
    const Floats before(comm.rank() == 0 ? 64 : 65, 1.0f + 0x1p-12f);
    const Tensor grad = from_values(before);
    try {
      exchange.sum(range_of(grad), {"bucket", 0})->wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const SystemError& e) {
      EXPECT_NE(std::string(e.what()).find("rank 1 calls all_reduce of 65 f16"), std::string::npos)
          << e.what();
    }
    EXPECT_EQ(values(grad), before);
  });
}

TEST(Exchange, DtypesAreChecked) {
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THROW(Exchange(comm, {.wire = DType::i32}, DType::f32), UsageError);
    EXPECT_THROW(Exchange(comm, {}, DType::u8), UsageError);
    Exchange exchange(comm, {}, DType::f32);
    EXPECT_THROW(exchange.sum(range_of(full({3}, 1, DType::f16)), {"test", 0}), UsageError);
  });
}

}  // namespace
}  // namespace lockstep::distributed

// Services of ranks that share a process: answers, waiting, time-outs, failures.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "core/kernels/elementwise.h"
#include "distributed/comm/launch.h"
#include "tests/support/error_of.h"
#include "tests/support/precision.h"

namespace lockstep::distributed {
namespace {

using namespace std::chrono_literals;

enum Kind { add, wait_for_sum, refuse };

// Adds up what is sent; a rank may wait until the sum is large enough.
class Adder final : public ServiceLogic {
 public:
  explicit Adder(std::atomic<int>* alive = nullptr) : alive_(alive) {
    if (alive_) ++*alive_;
  }
  ~Adder() override {
    if (alive_) --*alive_;
  }
  bool handle(int rank, ServiceCall& call) override {
    if (call.kind == refuse) throw std::domain_error("not today");
    if (call.kind == wait_for_sum && sum_ < call.weight) return false;
    if (call.kind == add) sum_ += call.weight;
    if (call.in.defined()) kernel::scale(call.out, call.in, 2);
    order_ = 10 * order_ + rank + 1;
    call.version = order_;
    call.outcome = static_cast<int>(sum_);
    return true;
  }
  ServiceHold hold(int, const ServiceCall& call) const override {
    if (call.clock == 0) return {};
    return {.what = "a sum of " + std::to_string(static_cast<int>(call.weight)),
            .ranks = {static_cast<int>(call.clock)}};
  }

 private:
  std::atomic<int>* alive_;
  double sum_ = 0;
  int64_t order_ = 0;  // the ranks that were answered, as decimal digits from 1
};
std::unique_ptr<ServiceLogic> make_adder() { return std::make_unique<Adder>(); }

ServiceCall call_of(int kind, double weight) {
  ServiceCall call;
  call.kind = kind;
  call.weight = weight;
  return call;
}

class Services : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, Services, testing::Values("solo", "threads"),
                         [](const auto& setting) { return setting.param; });

TEST_P(Services, AnswerAndMoveTensorsAndCountThem) {
  run_ranks(1, {.backend = GetParam()}, [](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    comm.reset_stats();
    const int64_t moved = comm.moved_bytes();
    ServiceCall call = call_of(add, 3);
    const std::vector<uint8_t> flags(5);
    call.in = from_values(std::vector<float>{1, 2, 3});
    call.out = zeros({3});
    call.flags = flags;
    port->call(call);
    EXPECT_EQ(test::floats(call.out), (std::vector<float>{2, 4, 6}));
    EXPECT_EQ(call.outcome, 3);
    const CommStats stats = comm.stats();
    EXPECT_EQ(stats.service.calls, 1);
    EXPECT_EQ(stats.service.wire_bytes, 29);
    EXPECT_EQ(stats.total().wire_bytes, 29);
    EXPECT_EQ(comm.moved_bytes() - moved, 29);
    EXPECT_GT(stats.comm_s, 0);
  });
}

TEST_P(Services, SeveralAreApart) {
  run_ranks(1, {.backend = GetParam()}, [](Communicator& comm) {
    const auto one = comm.open_service(make_adder), other = comm.open_service(make_adder);
    ServiceCall call = call_of(add, 3);
    one->call(call);
    other->call(call);
    EXPECT_EQ(call.outcome, 3);
    one->call(call);
    EXPECT_EQ(call.outcome, 6);
  });
}

TEST_P(Services, WhatTheyThrowTheCallerGets) {
  run_ranks(1, {.backend = GetParam()}, [](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    ServiceCall call = call_of(refuse, 0);
    EXPECT_THROW(port->call(call), std::domain_error);
    call = call_of(add, 1);
    port->call(call);
    EXPECT_EQ(call.outcome, 1);
  });
}

TEST_P(Services, WhoWaitsAloneIsToldAtOnce) {
  const auto start = Clock::now();
  run_ranks(1, {.backend = GetParam(), .timeout = 20s}, [](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    ServiceCall call = call_of(wait_for_sum, 1);
    const std::string text = test::error_of<SystemError>([&] { port->call(call); });
    EXPECT_EQ(text,
              "all ranks wait for a service and none can go on; rank 0 of 1 waits for an answer");
  });
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(ServicesOfThreads, OneObjectServesAllRanksAndDiesWithTheLastPort) {
  std::atomic<int> alive = 0, made = 0;
  run_ranks(4, [&](Communicator& comm) {
    auto port = comm.open_service([&] {
      ++made;
      return std::make_unique<Adder>(&alive);
    });
    ServiceCall call = call_of(add, 1);
    for (int i = 0; i < 100; ++i) port->call(call);
    call = call_of(wait_for_sum, 400);
    port->call(call);
    EXPECT_EQ(call.outcome, 400);
    port.reset();
    comm.barrier();
    EXPECT_EQ(alive, 0);
  });
  EXPECT_EQ(made, 1);
}

TEST(ServicesOfThreads, WaitingRanksAreAskedAgainInTheOrderOfRanks) {
  int64_t order = 0;
  run_ranks(4, [&](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    // 3, 2, 1 come in this order to wait, as far as sleeping can say; then 0 lets them go.
    std::this_thread::sleep_for(30ms * (4 - comm.rank()));
    ServiceCall call = comm.rank() == 0 ? call_of(add, 1) : call_of(wait_for_sum, 1);
    port->call(call);
    if (comm.rank() == 3) order = call.version;
  });
  EXPECT_EQ(order, 1234);
}

TEST(ServicesOfThreads, ALateRankIsNamedOnAllRanks) {
  std::vector<std::string> texts(3);
  run_ranks(3, {.timeout = 300ms}, [&](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    try {
      ServiceCall call = call_of(wait_for_sum, 7);
      call.clock = 2;
      if (comm.rank() == 0) port->call(call);
      std::this_thread::sleep_for(900ms);
      comm.barrier();
    } catch (const SystemError& e) {
      EXPECT_EQ(e.site().rank, 2);
      EXPECT_EQ(e.site().operation, "service");
      texts[comm.rank()] = e.what();
    }
  });
  for (const std::string& text : texts)
    EXPECT_EQ(text,
              "rank 2 of 3 did not call a service within 0.3 s; rank 0 of 3 waits for a sum of 7");
}

TEST(ServicesOfThreads, ARankThatComputesIsNotWaiting) {
  run_ranks(3, {.timeout = 20s}, [&](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    if (comm.rank() == 2) std::this_thread::sleep_for(100ms);
    ServiceCall call = comm.rank() == 2 ? call_of(add, 1) : call_of(wait_for_sum, 1);
    port->call(call);
    EXPECT_EQ(call.outcome, 1);
  });
}

TEST(ServicesOfThreads, AllRanksWaitingIsAnErrorAtOnce) {
  const auto start = Clock::now();
  std::vector<std::string> texts(3);
  run_ranks(3, {.timeout = 20s}, [&](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    try {
      ServiceCall call = call_of(wait_for_sum, 1);
      port->call(call);
    } catch (const SystemError& e) {
      texts[comm.rank()] = e.what();
    }
  });
  EXPECT_LT(Clock::now() - start, 5s);
  for (const std::string& text : texts)
    EXPECT_EQ(text.substr(0, 49), "all ranks wait for a service and none can go on; ") << text;
}

TEST(ServicesOfThreads, ARankThatLeftEndsThoseWhoWaitForIt) {
  const auto start = Clock::now();
  std::vector<std::string> texts(3);
  run_ranks(3, {.timeout = 20s}, [&](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    if (comm.rank() == 1) return;
    try {
      ServiceCall call = call_of(wait_for_sum, 1);
      call.clock = 1;
      if (comm.rank() == 0) port->call(call);
      comm.barrier();
    } catch (const SystemError& e) {
      texts[comm.rank()] = e.what();
    }
  });
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_TRUE(texts[0] == "rank 1 of 3 left the group; rank 0 of 3 waits for a sum of 1" ||
              texts[0].starts_with("rank 1 of 3 left before barrier"))  // rank 2 saw it first
      << texts[0];
}

TEST(ServicesOfThreads, AFailingRankEndsThoseWhoWait) {
  const auto start = Clock::now();
  EXPECT_THROW(run_ranks(3, {.timeout = 20s},
                         [&](Communicator& comm) {
                           const auto port = comm.open_service(make_adder);
                           if (comm.rank() == 1) throw std::domain_error("rank went mad");
                           ServiceCall call = call_of(wait_for_sum, 1);
                           port->call(call);
                         }),
               std::domain_error);
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(ServicesOfThreads, WhatALaterAnswerThrowsTheOneWhoWaitsGets) {
  class Moody final : public ServiceLogic {
   public:
    bool handle(int rank, ServiceCall&) override {
      if (rank == 0 && !annoyed_) return false;
      if (rank == 0) throw std::domain_error("not any more");
      return annoyed_ = true;
    }

   private:
    bool annoyed_ = false;
  };
  run_ranks(2, [&](Communicator& comm) {
    const auto port = comm.open_service([] { return std::make_unique<Moody>(); });
    ServiceCall call;
    if (comm.rank() == 0) {
      EXPECT_THROW(port->call(call), std::domain_error);
    } else {
      std::this_thread::sleep_for(50ms);
      port->call(call);
    }
  });
}

TEST(ServicesOfThreads, CollectivesMoveOnWhileARankWaits) {
  run_ranks(2, {.timeout = 20s}, [&](Communicator& comm) {
    const auto port = comm.open_service(make_adder);
    Tensor x = full({100}, 1);
    const WorkPtr work = comm.all_reduce(x);
    if (comm.rank() == 0) {  // waits for rank 1, which waits for this rank's share
      ServiceCall call = call_of(wait_for_sum, 1);
      port->call(call);
      work->wait();
    } else {
      std::this_thread::sleep_for(20ms);
      work->wait();
      ServiceCall call = call_of(add, 1);
      port->call(call);
    }
    EXPECT_EQ(test::floats(x)[0], 2);
  });
}

TEST(ServicesOfThreads, AMakerThatFailsFailsAll) {
  EXPECT_THROW(run_ranks(3, {.timeout = 20s},
                         [&](Communicator& comm) {
                           comm.open_service([]() -> std::unique_ptr<ServiceLogic> {
                             throw std::domain_error("no room");
                           });
                         }),
               std::domain_error);
}

}  // namespace
}  // namespace lockstep::distributed

// Communication calls neither malloc nor the system's allocator once it is warm.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "codes.h"
#include "core/allocator.h"
#include "distributed/comm/launch.h"
#include "models.h"
#include "optim/optimizer.h"
#include "precision.h"
#include "tables.h"

namespace {
std::atomic<int64_t> calls_of_new{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__)  // which has operators of its own
// Counts all allocations of this test program; the pool takes its memory elsewhere.
// Not inlined: the compiler would take free() after new for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  calls_of_new.fetch_add(1, std::memory_order_relaxed);
  if (void* block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { std::free(block); }
#endif

namespace lockstep::distributed {
namespace {

TEST(Allocation, CollectivesAllocateNothingOnceWarm) {
  run_ranks(2, [](Communicator& comm) {
    const Tensor x = full({1000}, 1), gathered = full({2000}, 1);
    const auto round = [&] {
      WorkPtr works[4];  // several on their way, as buckets are
      for (WorkPtr& work : works) work = comm.all_reduce(x, {.pre = 0.5f, .tag = {"bucket", 1}});
      for (WorkPtr& work : works) work->wait();
      comm.all_gather_v(gathered, x)->wait();
      comm.broadcast(x, 1)->wait();
      comm.barrier();
    };
    for (int i = 0; i < 200; ++i) round();  // every slot of the ring has seen every verb
    const int64_t calls = calls_of_new.load(), system = host_allocator().stats().system_calls;
    comm.barrier();
    for (int i = 0; i < 50; ++i) round();
    comm.barrier();
    EXPECT_EQ(calls_of_new.load() - calls, 0);
    EXPECT_EQ(host_allocator().stats().system_calls - system, 0);
    comm.barrier();  // the other rank counts, too
  });
}

// What every rank calls for of malloc and the system in 50 windows, once warm.
template <class Window>
void expect_no_allocation_by(const Window& window, Communicator& comm, const std::string& who) {
  for (int i = 0; i < 300; ++i) window();  // every slot of the ring has seen every verb
  // How many buffers are in use at once depends on timing, so a new maximum may come late.
  int64_t least = 1, least_system = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    comm.barrier();
    const int64_t calls = calls_of_new.load(), system = host_allocator().stats().system_calls;
    comm.barrier();
    for (int i = 0; i < 50; ++i) window();
    comm.barrier();
    least = std::min(least, calls_of_new.load() - calls);
    least_system = std::min(least_system, host_allocator().stats().system_calls - system);
    comm.barrier();  // the other rank counts, too
  }
  EXPECT_EQ(least, 0) << who;
  EXPECT_EQ(least_system, 0) << who;
}

// Trains under a strategy, without backward: how often the graph allocates is another room's
// matter.
void expect_no_allocation(const std::string& spec, const ExchangeOptions& exchange) {
  run_ranks(2, [&](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"a", 3000}, {"b", 500}, {"c", 1}, {"d", 10'000}};
    Linears model(specs);
    optim::FlatParams params(model);
    const auto strategy = make_strategy(spec);
    Reducer reducer(params, comm, *strategy,
                    {.bucket_bytes = 2000, .first_bucket_bytes = 2000, .exchange = exchange});
    const auto optimizer = optim::make_optimizer("adamw", params.all(), {});
    const optim::GradScaler scaler(1024);
    int64_t steps = 0;
    const auto window = [&] {
      { const auto micro = reducer.micro({.weight = 1, .scale = scaler.scale()}); }
      StepVerdict verdict = reducer.finish_backward(scaler);
      verdict.clip(reducer.grad_norm(verdict), 1);
      reducer.step(*optimizer, verdict);
      reducer.finish_step(steps++);
      comm.barrier();  // so that verbs move on through the slots of the ring
    };
    expect_no_allocation_by(window, comm,
                            spec + " " + exchange.compress + " " + describe(exchange));
  });
}

TEST(Allocation, WindowsOnEveryWireAllocateNothingOnceWarm) {
  for (const ExchangeOptions& exchange : default_exchanges())
    expect_no_allocation("allreduce", exchange);
}

TEST(Allocation, StepsOfEveryStrategyAllocateNothingOnceWarm) {
  for (const auto& entry : Registry<SyncStrategy>::instance().entries())
    expect_no_allocation(entry.name, {});
  expect_no_allocation("delayed:3", {.wire = DType::f16});
  for (const char* spec :
       {"local_sgd:2,warmup=20,moments=average", "diloco:3,moments=reset", "gossip:2"})
    expect_no_allocation(spec, {});
}

TEST(Allocation, WindowsOfEveryCodeAllocateNothingOnceWarm) {
  for (const std::string& code : all_codes()) {
    for (const Way way : {Way::gathered, Way::owned})
      expect_no_allocation("allreduce", {.compress = code + "+ef", .way = way});
    if (make_compressor(code)->adds_as())
      expect_no_allocation("allreduce", {.compress = code, .way = Way::added});
  }
}

TEST(Allocation, StepsOfTablesAllocateNothingOnceWarm) {
  for (const auto& entry : Registry<TableSync>::instance().entries())
    run_ranks(2, [&](Communicator& comm) {
      const std::string strategy = make_table_sync(entry.name)->together() ? "allreduce" : "hybrid";
      TableTrainer trainer(comm, strategy, entry.name, "adagrad");
      const Tensor dy = full({kBatch, 3, kWidth}, 1);
      const std::vector<kernel::Bags> bags = {bags_of(0), bags_of(1), bags_of(2)};
      int64_t steps = 0;
      const auto window = [&] {
        for (int k = 0; k < 2; ++k) {
          const auto& mine = bags[static_cast<size_t>(steps + k + comm.rank()) % 3];
          const Tensor rows = trainer.sync->fetch(mine.rows, mine.offsets);
          const auto micro = trainer.reducer.micro({.sync = k == 1 ? Sync::now : Sync::later});
          trainer.net.tables.gradient().add(dy, {.rows = rows, .offsets = mine.offsets});
        }
        trainer.end(steps++, 1);
        comm.barrier();
      };
      expect_no_allocation_by(window, comm, entry.name);
    });
}

}  // namespace
}  // namespace lockstep::distributed

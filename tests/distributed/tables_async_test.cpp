// Tables in a service: what is stale and how stale, what repeats, what travels.
#include <gtest/gtest.h>

#include <array>

#include "core/parallel.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "distributed/tables/row_parcel.h"
#include "distributed/tables/table_store.h"
#include "tables.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

using Rows = std::vector<int64_t>;
using Versions = std::vector<uint32_t>;

// A store of five rows of width 2, all 0, stepped by plain SGD.
struct Store {
  Store()
      : tables(zeros({5, 2})),
        logic(tables, optim::make_table_optimizer("sgd", tables, {.lr = 1})) {}

  struct Pulled {
    Floats values;
    Versions versions;
  };
  Pulled pull(const Rows& rows, TableStore::Kind kind = TableStore::pull) {
    const auto count = static_cast<int64_t>(rows.size());
    ServiceCall call;
    call.kind = kind;
    call.in = from_values(rows);
    call.out = RowParcel::room(count, 2, RowParcel::Rows::left_out);
    EXPECT_EQ(call.received(), count * (4 * 2 + 4));
    EXPECT_TRUE(logic.handle(0, call));
    const RowParcel parcel(call.out, count, 2, RowParcel::Rows::left_out);
    Pulled pulled{values(parcel.values()), Versions(rows.size())};
    parcel.read_versions(pulled.versions);
    return pulled;
  }
  // Gradients of 1 for all, with these versions.
  void push(const Rows& rows, const Versions& versions, double factor = 1, double lr = 1) {
    const auto count = static_cast<int64_t>(rows.size());
    ServiceCall call;
    call.kind = TableStore::push;
    call.in = RowParcel::room(count, 2, RowParcel::Rows::sent);
    EXPECT_EQ(call.sent(), count * (4 * 2 + 12));
    const RowParcel parcel(call.in, count, 2, RowParcel::Rows::sent);
    kernel::fill(parcel.values(), 1);
    parcel.write_versions(versions);
    parcel.write_rows(from_values(rows));
    call.weight = static_cast<double>(count);
    call.numbers = {factor, lr};
    EXPECT_TRUE(logic.handle(0, call));
  }
  Rows staleness() const {
    Rows counts = logic.updates().staleness;
    while (!counts.empty() && counts.back() == 0) counts.pop_back();
    return counts;
  }

  Tensor tables;
  TableStore logic;
};

TEST(TableStore, StalenessCountsOthersUpdatesOfTheRowSinceItWasFetched) {
  Store store;
  const Versions a = store.pull({1, 3}).versions, b = store.pull({3, 4}).versions;
  EXPECT_EQ(a, (Versions{0, 0}));
  store.push({1, 3}, a);
  EXPECT_EQ(store.staleness(), (Rows{2}));
  store.push({3, 4}, b);  // 3 has been updated once since
  EXPECT_EQ(store.staleness(), (Rows{3, 1}));
  const Store::Pulled c = store.pull({3});
  EXPECT_EQ(c.versions, (Versions{2}));
  EXPECT_EQ(c.values, (Floats{-2, -2}));
  store.push({3}, c.versions);
  store.push({1, 3}, a);  // 3 has been updated three times since it was fetched, 1 once
  EXPECT_EQ(store.staleness(), (Rows{4, 2, 0, 1}));
  StrategyReport report;
  store.logic.updates().report(report);
  EXPECT_EQ(report.numbers.at(0).name, "collision_rate");
  EXPECT_DOUBLE_EQ(report.numbers[0].value, 3.0 / 7);
  EXPECT_EQ(store.logic.updates().pushes, 4);
}

TEST(TableStore, StepsByThePushersFactorAndRate) {
  Store store;
  store.push({0, 2}, {0, 0}, 0.5, 0.25);
  EXPECT_EQ(values(store.tables), (Floats{-0.125f, -0.125f, 0, 0, -0.125f, -0.125f, 0, 0, 0, 0}));
}

TEST(TableStore, PeekingIsPulling) {
  Store store;
  store.push({4}, {0});
  EXPECT_EQ(store.pull({4}, TableStore::peek).values, (Floats{-1, -1}));
}

TEST(TableStore, RefusesRowsThatItHasNotAndParcelsThatDoNotFit) {
  Store store;
  EXPECT_NE(test::error_of([&] { store.pull({5}); }).find("expected 0 to 4, got 5"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] { store.push({2, 1}, {0, 0}); }).find("rows[1]"), std::string::npos);
  EXPECT_EQ(values(store.tables), Floats(10, 0));
  EXPECT_EQ(store.staleness(), Rows());
  ServiceCall call;
  call.kind = TableStore::push;
  call.weight = 3;
  call.in = RowParcel::room(2, 2, RowParcel::Rows::sent);
  EXPECT_NE(test::error_of([&] { store.logic.handle(0, call); }).find("3 rows"), std::string::npos);
}

// A rank's trained model, and what it has to tell.
struct Trained {
  Floats weights, tables;
  std::vector<int64_t> staleness;
  std::map<std::string, double> numbers;
  friend bool operator==(const Trained&, const Trained&) = default;
};
Trained outcome_of(TableTrainer& trainer) {
  Trained trained{trainer.weights(), trainer.tables(), {}, {}};
  const StrategyReport report = trainer.report();
  for (const auto& number : report.numbers) trained.numbers[number.name] = number.value;
  trained.staleness = report.histograms.at(0).counts;
  EXPECT_EQ(report.histograms[0].name, "row_staleness");
  return trained;
}

std::vector<Trained> train_modelled(const std::string& strategy, const std::string& cluster,
                                    int ranks, int64_t steps) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  const auto run = std::make_shared<virtual_cluster::Run>(virtual_cluster::Cluster::parse(cluster),
                                                          ranks, uint64_t{1});
  run_ranks(ranks, {.backend = "virtual", .timeout = std::chrono::seconds(20), .virtual_run = run},
            [&](Communicator& comm) {
              const ThreadBudget budget(1);
              TableTrainer trainer(comm, strategy, std::string(make_strategy(strategy)->tables()));
              for (int64_t s = 0; s < steps; ++s) trainer.step(s);
              comm.barrier();  // all have pushed
              all[comm.rank()] = outcome_of(trainer);
            });
  return all;
}

TEST(AsyncTables, RepeatBitForBitInModelledTime) {
  for (const char* strategy : {"async", "hybrid"}) {
    const char* cluster = "compute=10ms,jitter=lognormal:0.5,slow=1:1.7,latency=1ms,bandwidth=1MB";
    const auto once = train_modelled(strategy, cluster, 3, 8);
    EXPECT_EQ(once, train_modelled(strategy, cluster, 3, 8)) << strategy;
    EXPECT_EQ(once[0].tables, once[2].tables) << strategy;
    EXPECT_GT(once[0].numbers.at("collision_rate"), 0) << strategy;
    EXPECT_LT(once[0].numbers.at("collision_rate"), 1) << strategy;
  }
}

// Ranks that compute for as long as each other: all others, at most, have updated a row that all
// look up between a rank's fetch and its push, and but for the first push one has.
TEST(AsyncTables, ARowOfAllIsStaleByAtMostAllOthers) {
  const auto run = std::make_shared<virtual_cluster::Run>(
      virtual_cluster::Cluster::parse("compute=1s,latency=0s,bandwidth=1000GB"), 3, uint64_t{1});
  run_ranks(3, {.backend = "virtual", .virtual_run = run}, [](Communicator& comm) {
    TableTrainer trainer(comm, "async", "async");
    for (int64_t s = 0; s < 5; ++s) {
      trainer.micro(0);  // all the same
      trainer.end(s);
    }
    comm.barrier();
    const Trained trained = outcome_of(trainer);
    const auto rows = static_cast<int64_t>(trained.numbers.at("rows_touched"));
    ASSERT_EQ(trained.staleness.size(), 3u);
    EXPECT_EQ(trained.staleness[0], rows);
    EXPECT_EQ(trained.staleness[1] + trained.staleness[2], 14 * rows);
    EXPECT_DOUBLE_EQ(trained.numbers.at("collision_rate"), 14.0 / 15);
  });
}

// Without time between a fetch and a push nothing is stale, and n pushes move the tables as one
// mean does: under SGD as where rows are gathered, but for rounding.
TEST(AsyncTables, UnderHybridPushesAddUpToTheMeanOverRanks) {
  run_ranks(3, {}, [](Communicator& comm) {
    TableTrainer apart(comm, "hybrid", "async"), together(comm, "allreduce", "gathered");
    for (int64_t s = 0; s < 4; ++s) {
      comm.barrier();
      for (TableTrainer* trainer : {&apart, &together}) {
        const kernel::Bags bags = bags_of(3 * s + comm.rank());
        const Tensor rows = trainer->sync->fetch(bags.rows, bags.offsets);
        comm.barrier();  // nobody pushes before all have fetched
        {
          const auto micro = trainer->reducer.micro({.weight = kBatch});
          autograd::backward(trainer->net.loss_sum(3 * s + comm.rank(), rows, bags.offsets));
        }
        trainer->end(s);
        comm.barrier();
      }
    }
    const Floats got = apart.tables(), expected = together.tables();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-6) << i;
    comm.barrier();
  });
}

// promise 5
TEST(AsyncTables, BytesOfRowsAreThoseOfTheService) {
  run_ranks(2, {}, [](Communicator& comm) {
    TableTrainer trainer(comm, "hybrid", "async");
    comm.reset_stats();
    trainer.step(0, 2);
    const double bytes = comm.stats().service.wire_bytes;
    EXPECT_EQ(trainer.number("unique_row_bytes"), bytes);
    // A row each way: its number, value and version; then number, gradient and version.
    EXPECT_EQ(bytes, trainer.number("rows_touched") * (8 + 2 * 4 * kWidth + 4 + 12));
  });
}

TEST(AsyncTables, AClippedStepLeavesThemAsTheyAre) {
  const auto stepped = [](double max_norm) {
    Floats tables;
    run_ranks(1, {}, [&](Communicator& comm) {
      TableTrainer trainer(comm, "hybrid", "async");
      trainer.step(0, 1, max_norm);
      tables = trainer.tables();
    });
    return tables;
  };
  EXPECT_EQ(stepped(0), stepped(0.01));
}

TEST(AsyncTables, ALaterLearningRateIsThatOfPushes) {
  run_ranks(1, {}, [](Communicator& comm) {
    TableTrainer trainer(comm, "hybrid", "async");
    const Floats before = trainer.tables();
    trainer.sync->set_lr(0);
    trainer.step(0);
    EXPECT_EQ(trainer.tables(), before);
  });
}

}  // namespace
}  // namespace lockstep::distributed

// What every registered table strategy promises, on 1 to 4 ranks. A new one is tested by existing.
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "core/memory_state.h"
#include "core/parallel.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "tables.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

struct Model {
  Floats weights, tables;
  friend bool operator==(const Model&, const Model&) = default;
};
using test::error_of;
using Setting = std::tuple<std::string, int>;

// The strategy whose dense side goes with it.
std::string partner(const std::string& tables) {
  return make_table_sync(tables)->together() ? "allreduce" : "hybrid";
}

std::vector<Model> train(const std::string& tables, int ranks, int64_t steps, int micros = 1,
                         const std::string& optimizer = "sgd", double max_norm = 0,
                         const ReducerOptions& options = {}) {
  std::vector<Model> models(static_cast<size_t>(ranks));
  run_ranks(ranks, {}, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    TableTrainer trainer(comm, partner(tables), tables, optimizer, options);
    for (int64_t s = 0; s < steps; ++s) trainer.step(s, micros, max_norm);
    models[comm.rank()] = {trainer.weights(), trainer.tables()};
  });
  return models;
}

std::vector<std::string> table_syncs(bool together) {
  std::vector<std::string> names;
  for (const auto& entry : Registry<TableSync>::instance().entries())
    if (make_table_sync(entry.name)->together() == together) names.push_back(entry.name);
  return names;
}
std::vector<std::string> all_table_syncs() {
  std::vector<std::string> names = table_syncs(true);
  for (const std::string& name : table_syncs(false)) names.push_back(name);
  return names;
}
std::string name_of_setting(const testing::TestParamInfo<Setting>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

class TableContract : public testing::TestWithParam<Setting> {
 protected:
  std::string spec() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};
class TablesTogether : public TableContract {};
class TablesOfSeveralRanks : public TableContract {};
INSTANTIATE_TEST_SUITE_P(Contract, TableContract,
                         testing::Combine(testing::ValuesIn(all_table_syncs()),
                                          testing::Values(1, 2, 3, 4)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, TablesTogether,
                         testing::Combine(testing::ValuesIn(table_syncs(true)),
                                          testing::Values(1, 2, 3, 4)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, TablesOfSeveralRanks,
                         testing::Combine(testing::ValuesIn(all_table_syncs()),
                                          testing::Values(2, 3, 4)),
                         name_of_setting);

// promise 1: the model's own gradient, stepped by the optimiser, with nobody in between
TEST_P(TableContract, OneRankIsPlainTrainingBitForBit) {
  const ThreadBudget budget(1);
  BagNet net(1, kRows);
  optim::FlatParams params(net);
  const auto dense = optim::make_optimizer("sgd", params.all(), {.lr = 0.01, .weight_decay = 0});
  const auto sparse = optim::make_table_optimizer("adagrad", net.tables.weight(), {.lr = 0.05});
  for (int64_t s = 0; s < 5; ++s) {
    for (size_t i = 0; i < params.slices().size(); ++i)
      autograd::leaf_of(params.param(static_cast<int>(i))).landing = autograd::Landing::overwrite;
    const kernel::Bags bags = bags_of(s);
    autograd::backward(net.loss_sum(s, bags.rows, bags.offsets));
    StepVerdict verdict;
    verdict.factor = 1.0f / kBatch;
    dense->step(verdict);
    sparse->step(net.tables.gradient(), verdict);
  }
  EXPECT_EQ(train(spec(), 1, 5, 1, "adagrad")[0],
            (Model{floats(params.all().param), values(net.tables.weight())}));
}

// promise 2, with micro-batches that look up a row more than once
TEST_P(TablesTogether, RanksAreMicroBatchesOfOneRankBitForBit) {
  for (const char* optimizer : {"sgd", "adagrad", "rowwise_adagrad", "lazy_adam"})
    EXPECT_EQ(train(spec(), ranks(), 5, 1, optimizer)[0],
              train("gathered", 1, 5, ranks(), optimizer)[0])
        << optimizer;
}

// promise 4
TEST_P(TablesTogether, SameBitsOnAllRanksAsWhereAllIsGathered) {
  for (const ExchangeOptions& exchange : default_exchanges()) {
    const ReducerOptions options{.exchange = exchange};
    const std::vector<Model> models = train(spec(), ranks(), 4, 2, "adagrad", 0, options);
    for (const Model& other : models) EXPECT_EQ(other, models[0]) << describe(exchange);
    EXPECT_EQ(models[0], train("gathered", ranks(), 4, 2, "adagrad", 0, options)[0])
        << describe(exchange);
  }
}

// What a wire's divisions do to dense gradients is none of the tables' business.
TEST_P(TablesTogether, ADividedWireLeavesTheTablesStepAsItIs) {
  const auto step = [&](const ExchangeOptions& exchange, double max_norm) {
    Floats tables;
    run_ranks(ranks(), {}, [&](Communicator& comm) {
      TableTrainer trainer(comm, "allreduce", spec(), "sgd", {.exchange = exchange});
      trainer.step(0, 1, max_norm);
      const Floats mine = trainer.tables();
      if (comm.rank() == 0) tables = mine;
    });
    return tables;
  };
  const ExchangeOptions divided{.divide = Divide::before};
  EXPECT_EQ(step({}, 0), step(divided, 0));
  // Clipped, the norm's two parts have the same scale again.
  EXPECT_EQ(step({}, 0.1), step(divided, 0.1));
}

TEST_P(TablesTogether, TheNormIsThatOfOneRankWithMicroBatches) {
  double alone = 0;
  run_ranks(1, {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, "allreduce", "gathered");
    for (int k = 0; k < ranks(); ++k) trainer.micro(k, k + 1 == ranks() ? Sync::now : Sync::later);
    alone = trainer.reducer.grad_norm(trainer.reducer.finish_backward(trainer.scaler));
  });
  EXPECT_GT(alone, 0);
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, "allreduce", spec());
    trainer.micro(comm.rank());
    const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
    const double norm = trainer.reducer.grad_norm(verdict);
    EXPECT_NEAR(norm, alone, 1e-9 * alone);
    EXPECT_EQ(norm, trainer.reducer.grad_norm(verdict));  // asked twice
  });
}

// Of the tables' gradient alone; under `hybrid`, too.
TEST_P(TableContract, OneRanksInfinitySkipsTheStepEverywhere) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec(), "adagrad");
    trainer.step(0);
    comm.barrier();
    const Model before{trainer.weights(), trainer.tables()};
    comm.barrier();
    const bool bad = comm.rank() == ranks() - 1;
    trainer.micro(7 + comm.rank(), Sync::now, bad ? std::numeric_limits<float>::infinity() : 0.0f);
    EXPECT_FALSE(trainer.end(1).apply);
    EXPECT_EQ((Model{trainer.weights(), trainer.tables()}), before);
    comm.barrier();
    EXPECT_TRUE(trainer.step(2).apply);  // nothing of it is left
    EXPECT_NE(trainer.tables(), before.tables);
  });
}

// The one micro-batch of one rank, whose gradient only the step coalesces.
TEST_P(TableContract, InfinityIsSeenInAGradientThatNobodyCoalesced) {
  run_ranks(1, {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec());
    const Tensor rows = trainer.sync->fetch(bags_of(0).rows, bags_of(0).offsets);
    { const auto micro = trainer.reducer.micro({.weight = 1}); }
    Floats dy(kBatch * 3 * kWidth, 1);
    dy.back() = NAN;
    trainer.net.tables.gradient().add(from_values(dy, {kBatch, 3, kWidth}),
                                      {rows, bags_of(0).offsets});
    EXPECT_FALSE(trainer.end(0).apply);
  });
}

TEST_P(TableContract, AWindowThatWasGivenUpLeavesNoTrace) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec()), other(comm, partner(spec()), spec());
    trainer.micro(comm.rank());
    (void)trainer.reducer.finish_backward(trainer.scaler);  // and no step
    trainer.micro(5), other.micro(5);
    const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
    EXPECT_EQ(trainer.reducer.grad_norm(verdict),
              other.reducer.grad_norm(other.reducer.finish_backward(other.scaler)));
    trainer.reducer.step(*trainer.optimizer, verdict);
    other.reducer.step(*other.optimizer, verdict);
    comm.barrier();
    if (trainer.sync->together() || ranks() == 1) {
      EXPECT_EQ(trainer.tables(), other.tables());
    }
  });
}

TEST_P(TablesTogether, ModelledTimeDoesNotChangeTheBits) {
  Floats modelled;
  const auto run = std::make_shared<virtual_cluster::Run>(
      virtual_cluster::Cluster::parse("compute=10ms,jitter=lognormal:0.5,slow=0:1.5"), ranks(), 1);
  run_ranks(ranks(), {.backend = "virtual", .virtual_run = run}, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    TableTrainer trainer(comm, "allreduce", spec());
    for (int64_t s = 0; s < 4; ++s) trainer.step(s, 2);
    const double before = *comm.virtual_time();
    (void)trainer.evaluate(2);
    EXPECT_EQ(*comm.virtual_time(), before);
    const Floats tables = trainer.tables();
    if (comm.rank() == 0) modelled = tables;
  });
  EXPECT_EQ(modelled, train(spec(), ranks(), 4, 2)[0].tables);
}

TEST_P(TableContract, ItLearns) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec());
    const double before = trainer.evaluate(4);
    for (int64_t s = 0; s < 60; ++s) {
      trainer.micro((s + comm.rank()) % 4);
      trainer.end(s);
    }
    comm.barrier();
    EXPECT_LT(trainer.evaluate(4), 0.5 * before);
  });
}

TEST_P(TablesOfSeveralRanks, ARankWithoutRowsTakesPart) {
  run_ranks(ranks(), {.timeout = std::chrono::seconds(20)}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec());
    const int64_t mine = 2 + 2 * comm.rank();
    for (int64_t s = 0;; ++s) {
      s < mine ? trainer.micro(s * ranks() + comm.rank()) : trainer.no_micro();
      const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
      if (trainer.reducer.exhausted(verdict)) break;
      trainer.reducer.step(*trainer.optimizer, verdict);
      trainer.reducer.finish_step(s);
    }
    for (const float w : trainer.tables()) ASSERT_TRUE(std::isfinite(w));
  });
}

TEST_P(TableContract, EvaluationLooksAndLeavesNoTrace) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec());
    trainer.step(0);
    comm.barrier();
    const double first = trainer.evaluate(3);
    comm.barrier();
    EXPECT_EQ(trainer.evaluate(3), first);
    const double touched = trainer.number("rows_touched");
    EXPECT_EQ(trainer.number("rows_touched"), touched);
    trainer.step(1);
    EXPECT_NE(trainer.evaluate(3), first);
  });
}

TEST_P(TableContract, StateSurvivesARoundTrip) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec(), "adagrad");
    for (int64_t s = 0; s < 3; ++s) trainer.step(s);
    comm.barrier();
    MemoryState kept, again;
    kept.save([&](StateIo& io) { trainer.state(io); });
    const Floats at_the_time = trainer.tables();
    comm.barrier();
    for (int64_t s = 3; s < 6; ++s) trainer.step(s);

    TableTrainer resumed(comm, partner(spec()), spec(), "adagrad", {}, 77);
    kept.load([&](StateIo& io) { resumed.state(io); });
    resumed.params.bump_versions();
    again.save([&](StateIo& io) { resumed.state(io); });
    EXPECT_TRUE(kept == again);
    EXPECT_EQ(resumed.tables(), at_the_time);
    comm.barrier();
    for (int64_t s = 3; s < 6; ++s) resumed.step(s);
    if (trainer.sync->together() || ranks() == 1) {
      EXPECT_EQ(resumed.tables(), trainer.tables());
    }
  });
}

TEST_P(TableContract, RowsOutOfRangeAreNamed) {
  const std::string error = error_of<UsageError>([&] {
    run_ranks(ranks(), {}, [&](Communicator& comm) {
      TableTrainer trainer(comm, partner(spec()), spec());
      std::vector<int32_t> rows(3 * kBatch, 2);
      rows[kBatch + 5] = 40;
      const Tensor bad = from_values(rows);
      const Tensor places = trainer.sync->fetch(comm.rank() == 0 ? bad : bags_of(0).rows,
                                                comm.rank() == 0 ? Tensor() : bags_of(0).offsets);
      (void)trainer.net.loss_sum(0, places, comm.rank() == 0 ? Tensor() : bags_of(0).offsets);
    });
  });
  EXPECT_NE(error.find("table 1, sample 5, position 13"), std::string::npos) << error;
  EXPECT_NE(error.find("row < 40"), std::string::npos) << error;
}

TEST_P(TablesOfSeveralRanks, DifferentTablesAreRefusedOnAllRanks) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec());
    const auto other = make_table_sync(spec());
    TableContext context = trainer.context;
    if (comm.rank() == ranks() - 1) context.rows[1] = 41;
    const std::string error = error_of<SystemError>([&] {
      other->attach(context, trainer.net.tables.weight(), trainer.net.tables.gradient());
    });
    EXPECT_NE(error.find("40"), std::string::npos) << error;
    EXPECT_NE(error.find("41"), std::string::npos) << error;
  });
}

TEST_P(TableContract, TouchedRowsAreCounted) {
  run_ranks(ranks(), {}, [&](Communicator& comm) {
    TableTrainer trainer(comm, partner(spec()), spec());
    trainer.step(0, 2);
    test::NaiveRows touched;
    for (int k = 0; k < 2; ++k)
      test::for_each_index(bags_of(comm.rank() * 2 + k), 3,
                           [&](int64_t t, int64_t, int64_t, int64_t row, int64_t) {
                             touched[test::TestTables(kRows).first_row[t] + row];
                           });
    if (trainer.sync->together()) {
      EXPECT_EQ(trainer.number("rows_touched"), static_cast<double>(touched.size()));
    }
  });
}

// Whatever the dense side does, its tables go with it; bit for bit where it is synchronous.
TEST(TableSync, StrategiesTrainWithTheTablesThatTheyName) {
  std::vector<std::string> specs = {"async:bound=0", "hybrid:tables=hogwild"};
  for (const auto& entry : Registry<SyncStrategy>::instance().entries())
    specs.push_back(entry.name);
  int with_tables = 0;
  for (const std::string& spec : specs) {
    const auto strategy = make_strategy(spec);
    const std::string tables(strategy->tables());
    if (tables.empty()) continue;
    ++with_tables;
    run_ranks(3, {}, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      TableTrainer trainer(comm, spec, tables), expected(comm, "allreduce", "gathered");
      for (int64_t s = 0; s < 4; ++s) trainer.step(s, 2), expected.step(s, 2);
      trainer.reducer.end();
      comm.barrier();
      if (strategy->synchronous()) {
        EXPECT_EQ((Model{trainer.weights(), trainer.tables()}),
                  (Model{expected.weights(), expected.tables()}))
            << spec;
      }
      for (const float w : trainer.tables()) ASSERT_TRUE(std::isfinite(w)) << spec;
    });
  }
  EXPECT_GE(with_tables, 7);
}

TEST(TableSync, UnsharedVerdictsRefuseTablesThatStepTogether) {
  run_ranks(2, {}, [&](Communicator& comm) {
    const std::string error =
        error_of<UsageError>([&] { TableTrainer trainer(comm, "gossip", "gathered"); });
    EXPECT_NE(error.find("share a verdict"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace lockstep::distributed

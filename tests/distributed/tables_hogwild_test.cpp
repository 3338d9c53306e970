// Tables in memory that threads share without a lock.
#include <gtest/gtest.h>

#include <numeric>

#include "core/parallel.h"
#include "distributed/tables/shared_rows.h"
#include "tables.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

using test::error_of;

std::vector<int64_t> staleness_of(TableTrainer& trainer) {
  return trainer.report().histograms.at(0).counts;
}

// Both fetch, then one steps after the other.
TEST(Hogwild, StalenessOfAScheduleMadeByHand) {
  run_ranks(2, {}, [](Communicator& comm) {
    TableTrainer trainer(comm, "hybrid:tables=hogwild", "hogwild");
    const kernel::Bags bags = bags_of(0);
    const Tensor rows = trainer.sync->fetch(bags.rows, bags.offsets);
    {
      const auto micro = trainer.reducer.micro({.weight = kBatch});
      autograd::backward(trainer.net.loss_sum(0, rows, bags.offsets));
    }
    const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
    for (int rank = 0; rank < 2; ++rank) {
      if (comm.rank() == rank) trainer.reducer.step(*trainer.optimizer, verdict);
      comm.barrier();
    }
    const auto touched = static_cast<int64_t>(trainer.number("rows_touched"));
    EXPECT_EQ(staleness_of(trainer), (std::vector<int64_t>{touched, touched}));
    EXPECT_EQ(trainer.number("collision_rate"), 0.5);
    EXPECT_EQ(trainer.number("unique_row_bytes"), static_cast<double>(touched * 2 * 4 * kWidth));
  });
}

// Values of rows may be lost where threads meet; counts of updates are not.
TEST(Hogwild, EveryUpdateIsCountedWhileThreadsRace) {
  run_ranks(4, {}, [](Communicator& comm) {
    const ThreadBudget budget(1);
    TableTrainer trainer(comm, "hybrid:tables=hogwild", "hogwild", "adagrad");
    for (int64_t s = 0; s < 25; ++s) {
      trainer.micro(s % 5);  // the same rows on all ranks
      trainer.end(s);
    }
    comm.barrier();
    const std::vector<int64_t> staleness = staleness_of(trainer);
    EXPECT_EQ(static_cast<double>(std::accumulate(staleness.begin(), staleness.end(), int64_t{0})),
              4 * 25 * trainer.number("rows_touched"));
    for (const float w : trainer.tables()) ASSERT_TRUE(std::isfinite(w));
    comm.barrier();
  });
}

TEST(Hogwild, ReadsAndWritesWholeArrays) {
  SharedRows rows({from_values<float>({1, 2, 3, 4}, {2, 2}), from_values<float>({5, 6}, {2})});
  float two[2];
  rows.read(0, 1, two);
  EXPECT_EQ(two[1], 4);
  two[0] = -3;
  rows.write(0, 1, two);
  rows.read(0, 1, two);
  EXPECT_EQ(two[0], -3);
  rows.read(1, 1, two);
  EXPECT_EQ(two[0], 6);
  EXPECT_EQ(rows.count(1), 0u);
  EXPECT_EQ(rows.count(1), 1u);
  EXPECT_EQ(rows.version(1), 2u);
  RowUpdates updates{.pushes = 1};
  updates.add(3);
  rows.add(updates);
  rows.add(updates);
  EXPECT_EQ(rows.updates().staleness[3], 2);
  EXPECT_EQ(rows.updates().pushes, 2);
}

TEST(Hogwild, IsForThreadsAndForOptimizersWhoseStateIsASum) {
  const auto error_on = [](const std::string& backend, const std::string& optimizer) {
    return error_of<UsageError>([&] {
      run_ranks(2, {.backend = backend}, [&](Communicator& comm) {
        TableTrainer trainer(comm, "hybrid:tables=hogwild", "hogwild", optimizer);
      });
    });
  };
  EXPECT_NE(error_on("virtual", "sgd").find("--backend threads"), std::string::npos);
  EXPECT_NE(error_on("threads", "lazy_adam").find("sgd, adagrad, rowwise_adagrad"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::distributed

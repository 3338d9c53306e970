// The norm of replicated and divided gradients, and what a clipped step makes of it.
#include <gtest/gtest.h>

#include "distributed/comm/launch.h"
#include "distributed/tables/table_sync.h"
#include "rank.h"
#include "tables.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

// Two ranks; a replicated gradient [3, 4], and that of a table's two rows, 12 and 84, each the mean
// of what both ranks found: its norm is 85. Neither 13 and 84.1 (a rank's own) nor 85.1 (what is
// replicated counted twice).
void expect_one_norm(const std::string& spec) {
  run_ranks(2, {}, [&](Communicator& comm) {
    Rank<> rank(comm, {}, kPlainSgd, std::vector<Linears::Spec>{{.name = "a"}, {.name = "b"}});
    const auto tables = make_table_sync(spec);
    const TableContext context{
        .comm = &comm,
        .rows = {2},
        .width = 1,
        .lookups = 2,
        .initial = [](const Tensor& out, int64_t) { out.mutable_data<float>()[0] = 0; },
        .optimizer =
            [](const Tensor& t) { return optim::make_table_optimizer("sgd", t, {.lr = 1}); }};
    const Tensor weight = zeros({2, 1});
    autograd::TableGradient gradient(context.rows, 1);
    tables->attach(context, weight, gradient);
    rank.reducer.add_tables(*tables);

    const Tensor places = tables->fetch(from_values(std::vector<int32_t>{0, 1}), {});
    rank.micro(rank.model.loss({{0, 3.0f}, {1, 4.0f}}), Sync::now, 1);
    // A row's gradient comes from the rank that does not own it, and from both.
    const Floats mine = comm.rank() == 0 ? Floats{4, 168} : Floats{20, 0};
    gradient.add(from_values(mine, {2, 1, 1}), {places});
    StepVerdict verdict = rank.finish();
    const double norm = rank.reducer.grad_norm(verdict);
    EXPECT_DOUBLE_EQ(norm, 85);
    verdict.clip(norm, 8.5);
    rank.step(verdict);
    EXPECT_FLOAT_EQ(rank.model.value(0), -0.3f);
    EXPECT_FLOAT_EQ(rank.model.value(1), -0.4f);
    const auto looking = rank.reducer.evaluating(*rank.optimizer);
    const Tensor now = tables->fetch(from_values(std::vector<int32_t>{0, 1}), {});
    EXPECT_FLOAT_EQ(weight.data<float>()[now.data<int32_t>()[0]], -1.2f);
    EXPECT_FLOAT_EQ(weight.data<float>()[now.data<int32_t>()[1]], -8.4f);
  });
}

TEST(KnownFaults, O07_NormOfReplicatedParametersAndShardedTables) { expect_one_norm("sharded"); }
TEST(KnownFaults, O07_NormOfReplicatedParametersAndReplicatedTables) {
  expect_one_norm("gathered");
}

// A service clips by the norm of dense gradients, which it alone knows: ranks would step the same
// tables by different norms.
TEST(TablesNorm, IsRefusedWhereRanksCannotTellIt) {
  run_ranks(2, {}, [](Communicator& comm) {
    TableTrainer trainer(comm, "async:bound=0", "gathered");
    trainer.micro(comm.rank());
    const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
    EXPECT_NE(test::error_of([&] {
                (void)trainer.reducer.grad_norm(verdict);
              }).find("a service that clips dense gradients by a norm of its own"),
              std::string::npos);
    EXPECT_TRUE(trainer.reducer.step(*trainer.optimizer, verdict).apply);
    trainer.reducer.finish_step(0);
  });
}

}  // namespace
}  // namespace lockstep::distributed

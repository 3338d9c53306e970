// Promise 5 where a parameter is not used in every window.
#include <gtest/gtest.h>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "rank.h"

namespace lockstep::distributed {
namespace {

TEST(OwedResiduals, AreAppliedThoughNobodyUsesTheParameterAnyMore) {
  // An element of each tensor a window; b is used in the first one only.
  for (const char* strategy : {"allreduce", "naive", "delayed:1", "async:bound=0"})
    run_ranks(2, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      ReducerOptions options;
      options.exchange.compress = "topk:ratio=0.25+ef";
      Rank<> rank(strategy, comm, options, kPlainSgd,
                  std::vector<Linears::Spec>{{"a", 4}, {"b", 4}});
      const auto share = static_cast<float>(comm.rank() + 1);  // 1.5 on average
      for (int t = 0; t < 6; ++t) {
        rank.micro(
            rank.model.loss(t == 0 ? std::vector<std::pair<int, float>>{{0, share}, {1, share}}
                                   : std::vector<std::pair<int, float>>{{0, share}}),
            Sync::now, 1);
        rank.step(rank.finish());
      }
      EXPECT_EQ(floats(rank.model.w[1]), Floats(4, -1.5f)) << strategy;
    });
}

TEST(OwedResiduals, AParameterOfWhichNothingIsOwedIsNotStepped) {
  run_ranks(2, [&](Communicator& comm) {
    ReducerOptions options;
    options.exchange.compress = "topk:ratio=1+ef";
    Rank<> rank(comm, options, optim::OptimizerOptions{.lr = 1, .weight_decay = 0.5},
                std::vector<Linears::Spec>{{"a", 4}, {"b", 4, 1}});
    for (int t = 0; t < 3; ++t) {
      rank.micro(rank.model.loss({{0, 1.0f}}), Sync::now, 1);
      rank.step(rank.finish());
    }
    EXPECT_EQ(floats(rank.model.w[1]), Floats(4, 1.0f));
  });
}

}  // namespace
}  // namespace lockstep::distributed

// Sparse codes where they are used: summed over ranks, in steps, over stops.
#include <gtest/gtest.h>

#include <cmath>

#include "core/memory_state.h"
#include "core/random.h"
#include "distributed/comm/launch.h"
#include "distributed/compress/compress_spec.h"
#include "distributed/compress/range_plan.h"
#include "tests/distributed/rank.h"

namespace lockstep::distributed {
namespace {

ReducerOptions compressed(const std::string& spec, Way way = Way::automatic) {
  return {.exchange = {.compress = spec, .way = way}};
}
const std::vector<Linears::Spec> kTwo = {{"a"}, {"b"}};

// Of one rank, or of two with half of it each: a's and b's gradient.
struct Trained {
  std::vector<std::pair<float, float>> weights;  // after each step
};
Trained train(const std::string& spec, int ranks, float a, float b, int steps) {
  Trained trained;
  run_ranks(ranks, [&](Communicator& comm) {
    Rank<> rank(comm, compressed(spec), kPlainSgd, kTwo);
    for (int step = 0; step < steps; ++step) {
      rank.micro(rank.model.loss({{0, a}, {1, b}}), Sync::now, 1);
      rank.step(rank.finish());
      if (comm.rank() == 0) trained.weights.emplace_back(rank.model.value(0), rank.model.value(1));
    }
  });
  return trained;
}

TEST(KnownFaults, O42_ByTheReducerAndPlainSgd) {
  for (int ranks : {1, 2}) {  // which agree, and whose mean is that of one
    const auto weights =
        train("topk:ratio=0.5,momentum=0.5,scope=bucket+ef", ranks, 8, 5, 3).weights;
    EXPECT_EQ(weights, (std::vector<std::pair<float, float>>{{-8, 0}, {-8, -12.5f}, {-28, -12.5f}}))
        << ranks;
  }
}

TEST(KnownFaults, O42_VelocityAndResidualSurviveAResume) {
  run_ranks(1, [](Communicator& comm) {
    const ReducerOptions options = compressed("topk:ratio=0.5,momentum=0.5,scope=bucket+ef");
    MemoryState kept;
    std::vector<float> weights;
    {
      Rank<> rank(comm, options, kPlainSgd, kTwo);
      for (int step = 0; step < 2; ++step) {
        rank.micro(rank.model.loss({{0, 8}, {1, 5}}), Sync::now, 1);
        rank.step(rank.finish());
      }
      kept.save([&](StateIo& io) { rank.strategy->state(io); });
      weights = {rank.model.value(0), rank.model.value(1)};
    }
    Rank<> rank(comm, options, kPlainSgd,
                std::vector<Linears::Spec>{{"a", 1, weights[0]}, {"b", 1, weights[1]}});
    kept.load([&](StateIo& io) { rank.strategy->state(io); });
    rank.micro(rank.model.loss({{0, 8}, {1, 5}}), Sync::now, 1);
    rank.step(rank.finish());
    EXPECT_EQ(rank.model.value(0), -28);
    EXPECT_EQ(rank.model.value(1), -12.5f);
  });
}

// Each rank keeps what it has not sent itself, whatever the others did.
TEST(KnownFaults, O17_ResidualsAreEachRanksOwn) {
  run_ranks(2, [](Communicator& comm) {
    const std::vector<optim::ParamSlice> slices = {
        {.name = "w", .shape = {4}, .begin = 0, .end = 4}};
    const optim::FlatView view{.param = zeros({4}), .grad = zeros({4}), .slices = slices};
    Exchange exchange(comm, {.compress = "topk:ratio=0.25+ef"}, view);
    const Floats g[] = {{-5, 1, 2, -3}, {1, 4, 0, -3}};
    const Floats expected[] = {{-5, 4, 0, 0}, {0, 0, 0, -12}, {-10, 8, 0, 0}};
    for (int step = 0; step < 3; ++step) {
      std::ranges::copy(g[comm.rank()], view.grad.mutable_data<float>());
      exchange.window({.scale = 1, .weight = 1});
      exchange.sum(view, {"bucket", 0})->wait();
      exchange.resolve(true);
      EXPECT_EQ(floats(view.grad), expected[step]) << "step " << step << ", " << comm.rank();
    }
    MemoryState kept;
    kept.save([&](StateIo& io) { exchange.state(io); });
  });
}

Floats normal(size_t n, uint64_t seed) {
  const Random random(seed, RandomStream::tests);
  Floats x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}

TEST(SparseSums, BothWaysGiveTheSameBits) {
  const std::vector<optim::ParamSlice> slices = {
      {.name = "a", .shape = {900}, .begin = 0, .end = 900},
      {.name = "b", .shape = {1}, .begin = 900, .end = 901},
      {.name = "c", .shape = {2100}, .begin = 901, .end = 3001}};
  for (const char* spec :
       {"topk:ratio=0.1", "topk:ratio=0.4,values=int8+ef",
        "topk:ratio=0.05,scope=bucket,values=fp16+ef", "topk:ratio=0.02,momentum=0.9,warmup=3+ef",
        "topk:ratio=0.1,select=sampled,values=bf16+ef", "threshold:value=2",
        "threshold:value=2,values=int8+ef", "randomk:ratio=0.1+ef",
        "randomk:ratio=0.2,values=fp16+ef"})
    for (int ranks : {2, 3, 4}) {
      std::vector<Floats> sums[2];
      MemoryState states[2];
      for (const Way way : {Way::gathered, Way::owned})
        run_ranks(ranks, [&](Communicator& comm) {
          const int which = way == Way::owned;
          const optim::FlatView view{
              .param = zeros({3001}), .grad = zeros({3001}), .slices = slices};
          Exchange exchange(comm, {.compress = spec, .way = way}, view);
          for (int step = 0; step < 4; ++step) {
            std::ranges::copy(normal(3001, static_cast<uint64_t>(10 * step + comm.rank())),
                              view.grad.mutable_data<float>());
            exchange.window({.scale = 1, .weight = 1});
            const WorkPtr works[] = {exchange.sum(view.range(0, 901), {"bucket", 0}),
                                     exchange.sum(view.range(901, 3001), {"bucket", 1})};
            for (const WorkPtr& work : works) work->wait();
            exchange.resolve(true);
            if (comm.rank() == 0) sums[which].push_back(floats(view.grad));
          }
          if (comm.rank() == 0) states[which].save([&](StateIo& io) { exchange.state(io); });
        });
      EXPECT_EQ(sums[0], sums[1]) << spec << " " << ranks;
      EXPECT_TRUE(states[0] == states[1]) << spec << " " << ranks;
    }
}

Way way_of(const std::string& spec, int ranks, int64_t n) {
  const std::vector<optim::ParamSlice> slices = {{.name = "w", .shape = {n}, .begin = 0, .end = n}};
  const optim::FlatView view{.param = zeros({n}), .grad = zeros({n}), .slices = slices};
  const CompressSpec parsed = CompressSpec::parse(spec);
  return RangePlan(view, *make_compressor(parsed.code), parsed.feedback, ranks, 0, Way::automatic)
      .way();
}

TEST(SparseSums, OwnersAddUpWhereThatMovesLess) {
  // Two ranks: sums have what both sent, gathering has half of it.
  EXPECT_EQ(way_of("topk:ratio=0.3+ef", 2, 100'000), Way::gathered);
  // The same elements in a few ranks' sums: gathered, 0.3 of all from each of 3.
  EXPECT_EQ(way_of("topk:ratio=0.3+ef", 4, 100'000), Way::owned);
  // One in a hundred is not yet half of all with 32 ranks.
  EXPECT_EQ(way_of("topk:ratio=0.01+ef", 4, 100'000), Way::gathered);
  EXPECT_EQ(way_of("topk:ratio=0.05+ef", 32, 100'000), Way::owned);
  // What is drawn by a shared seed can be added on the wire, or, with residuals, by owners.
  EXPECT_EQ(way_of("randomk", 4, 100'000), Way::added);
  EXPECT_EQ(way_of("randomk+ef", 4, 100'000), Way::owned);
}

TEST(SparseSums, MomentumNeedsFeedback) {
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THROW(Rank<>(comm, compressed("topk:momentum=0.5"), kPlainSgd, kTwo), UsageError);
  });
}

// Momentum of the optimiser on top would end at -18.75 where -12.5 is right, and L2 decay would
// enter after it.
TEST(KnownFaults, O42_MomentumComesOnce) {
  run_ranks(1, [](Communicator& comm) {
    const auto train_by = [&](const std::string& compress, const optim::OptimizerOptions& sgd) {
      Rank<> rank(comm, compressed(compress), sgd, kTwo);
      rank.micro(rank.model.loss({{0, 8}, {1, 5}}), Sync::now, 1);
      rank.step(rank.finish());
    };
    const std::string corrected = "topk:ratio=0.5,momentum=0.5+ef";
    const optim::OptimizerOptions heavy{.lr = 1, .momentum = 0.5, .weight_decay = 0},
        decayed{.lr = 1, .weight_decay = 0.1};
    EXPECT_THROW(train_by(corrected, heavy), UsageError);
    EXPECT_THROW(train_by(corrected, decayed), UsageError);
    EXPECT_NO_THROW(train_by(corrected, kPlainSgd));
    EXPECT_NO_THROW(train_by("topk:ratio=0.5+ef", heavy));
  });
}

}  // namespace
}  // namespace lockstep::distributed

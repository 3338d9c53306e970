#include "distributed/layers/sync_batch_norm.h"

#include <gtest/gtest.h>

#include <mutex>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "core/kernels/elementwise.h"
#include "distributed/buffer_sync.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/scalars.h"
#include "layers/linear.h"
#include "rank.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace lockstep::distributed {
namespace {

using layers::BatchNorm;
using layers::Module;
using lockstep::test::error_of;
using lockstep::testing::near;
using lockstep::testing::randn;
using Counts = std::vector<int64_t>;

// What a rank has after one forward and backward of y = norm(x), seeded with dy.
struct Outcome {
  Tensor y, dx, dweight, dbias;
  Floats mean, variance;
  int64_t batches = 0;
};
Outcome outcome(BatchNorm& norm, const Tensor& x, const Tensor& dy) {
  const Tensor in = from_values(values(x), x.shape());
  autograd::require_grad(in);
  Outcome o;
  o.y = norm(in);
  autograd::backward(o.y, dy);
  o.dx = autograd::grad(in);
  const auto parameters = norm.parameters();
  o.dweight = autograd::grad(*parameters[0].slot);
  o.dbias = autograd::grad(*parameters[1].slot);
  o.mean = values(norm.running_mean());
  o.variance = values(norm.running_variance());
  o.batches = norm.batches();
  return o;
}

// Each rank runs SyncBN on its rows; the outcomes by rank.
std::vector<Outcome> over_ranks(const std::string& backend, const Tensor& x, const Tensor& dy,
                                const Counts& counts,
                                const layers::BatchNormOptions& options = {}) {
  std::vector<Outcome> outcomes(counts.size());
  std::mutex mutex;
  run_ranks(static_cast<int>(counts.size()), {.backend = backend}, [&](Communicator& comm) {
    layers::Initialiser init(1);
    BatchNorm norm(init, x.size(1), options);
    EXPECT_EQ(sync_batch_norms(norm, comm), 1);
    int64_t begin = 0;
    for (int r = 0; r < comm.rank(); ++r) begin += counts[static_cast<size_t>(r)];
    const int64_t end = begin + counts[static_cast<size_t>(comm.rank())];
    Outcome mine = outcome(norm, x.slice(begin, end), dy.slice(begin, end));
    const std::lock_guard lock(mutex);
    outcomes[static_cast<size_t>(comm.rank())] = std::move(mine);
  });
  return outcomes;
}

Tensor of(const Floats& v) { return from_values(v, {static_cast<int64_t>(v.size()), 1}); }

class SyncBatchNorm : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, SyncBatchNorm, ::testing::Values("threads", "virtual"));

TEST_P(SyncBatchNorm, IsOneRankWithTheWholeBatchInAnySplitOfIt) {
  const std::vector<Counts> splits = {{12},         {7, 5},       {1, 11},
                                      {0, 12},      {4, 0, 8},    {5, 6, 1},
                                      {3, 3, 3, 3}, {1, 0, 9, 2}, {0, 0, 12, 0}};
  for (const Shape& shape : {Shape{12, 3}, Shape{12, 3, 2, 5}}) {
    const Tensor x = randn(shape, 1, 2), dy = randn(shape, 2);
    for (float& v : std::span(x.mutable_data<float>(), static_cast<size_t>(x.numel()))) v += 30;
    layers::Initialiser init(1);
    BatchNorm alone(init, 3);
    const Outcome whole = outcome(alone, x, dy);
    for (const Counts& counts : splits) {
      SCOPED_TRACE(fmt::format("{} in {} parts, {} first", shape, counts.size(), counts[0]));
      const auto parts = over_ranks(GetParam(), x, dy, counts);
      int64_t begin = 0;
      Floats dweight(3), dbias(3);
      for (size_t r = 0; r < counts.size(); ++r) {
        const Outcome& part = parts[r];
        const int64_t end = begin + counts[r];
        EXPECT_TRUE(near(part.y, whole.y.slice(begin, end), 2e-6, 1));
        EXPECT_TRUE(near(part.dx, whole.dx.slice(begin, end), 2e-6, 1));
        for (size_t c = 0; c < 3; ++c) {
          dweight[c] += values(part.dweight)[c];
          dbias[c] += values(part.dbias)[c];
        }
        EXPECT_EQ(part.mean, parts[0].mean) << "the same bits on all ranks";
        EXPECT_EQ(part.variance, parts[0].variance);
        EXPECT_EQ(part.batches, 1);
        begin = end;
      }
      EXPECT_TRUE(near(from_values(dweight), whole.dweight, 2e-6, 1));
      EXPECT_TRUE(near(from_values(dbias), whole.dbias, 2e-6, 1));
      EXPECT_TRUE(near(from_values(parts[0].mean), from_values(whole.mean), 1e-6));
      EXPECT_TRUE(near(from_values(parts[0].variance), from_values(whole.variance), 2e-6));
    }
  }
}

TEST_P(SyncBatchNorm, OfOneRankIsBatchNormBitForBit) {
  const Tensor x = randn({9, 3, 7}, 1, 2), dy = randn({9, 3, 7}, 2);
  layers::Initialiser init(1);
  BatchNorm alone(init, 3);
  const Outcome expected = outcome(alone, x, dy), got = over_ranks(GetParam(), x, dy, {9})[0];
  EXPECT_EQ(values(got.y), values(expected.y));
  EXPECT_EQ(values(got.dx), values(expected.dx));
  EXPECT_EQ(got.variance, expected.variance);
}

TEST_P(SyncBatchNorm, KeepsLargeMeans) {
  const Floats level = {40000, 40001, 40002, 40003};
  const auto parts = over_ranks(GetParam(), of(level), of({1, 0, 0, 0}), {1, 3});
  EXPECT_NEAR(values(parts[0].y)[0], -1.3416354, 1e-4);
  EXPECT_NEAR(values(parts[1].y)[2], 1.3416354, 1e-4);
  EXPECT_NEAR(parts[0].variance[0], 0.9 + 0.1 * 5 / 3, 1e-6);
}

TEST_P(SyncBatchNorm, CommunicatesOnceForwardAndOnceBackward) {
  run_ranks(2, {.backend = GetParam()}, [](Communicator& comm) {
    layers::Initialiser init(1);
    BatchNorm norm(init, 5);
    const auto exchange = std::make_shared<MomentsOverRanks>(comm);
    norm.join(exchange);
    outcome(norm, randn({4, 5}, 1), randn({4, 5}, 2));
    const CommStats stats = exchange->stats();
    EXPECT_EQ(stats[Verb::all_gather].calls, 1);
    EXPECT_EQ(stats[Verb::all_reduce].calls, 1);
    EXPECT_EQ(stats.total().calls, 2);
    norm.set_mode(Module::Mode::evaluate);
    norm(randn({4, 5}, 1));
    norm.set_mode(Module::Mode::train);
    norm.freeze();
    outcome(norm, randn({4, 5}, 1), randn({4, 5}, 2));
    EXPECT_EQ(exchange->stats().total().calls, 2) << "evaluation and frozen statistics ask nobody";
  });
}

// Linear, normalisation, relu, linear: a model with normalisations below its top.
class NormedNet final : public Module {
 public:
  explicit NormedNet(uint64_t seed)
      : init_(seed), first_(init_, 4, 16), norm_(init_, 16), second_(init_, 16, 2) {
    add_child("first", first_);
    add_child("norm", norm_);
    add_child("second", second_);
  }
  Tensor operator()(const Tensor& x) const {
    return second_(ops::unary(norm_(first_(x)), kernel::Unary::relu));
  }
  /// Σ of squared errors against fixed targets of these samples.
  Tensor loss_sum(const Tensor& x, const Tensor& y) const {
    return ops::sum(ops::unary(ops::subtract((*this)(x), y), kernel::Unary::square));
  }
  BatchNorm& norm() { return norm_; }

 private:
  layers::Initialiser init_;
  layers::Linear first_;
  BatchNorm norm_;
  layers::Linear second_;
};

// Losses of six steps of SGD on 24 samples, shared out unequally.
Floats curve(const std::string& backend, int ranks, bool sync) {
  Floats losses;
  run_ranks(ranks, {.backend = backend}, [&](Communicator& comm) {
    Rank<NormedNet> rank(comm, {}, {.lr = 0.1, .weight_decay = 0}, 7);
    if (sync) sync_batch_norms(rank.model, comm);
    const Tensor x = randn({24, 4}, 3, 2), y = randn({24, 2}, 4);
    const int64_t begin = comm.rank() == 0 ? 0 : 5 + (19 / ranks) * comm.rank(),
                  end = comm.rank() + 1 == ranks ? 24 : 5 + (19 / ranks) * (comm.rank() + 1);
    for (int step = 0; step < 6; ++step) {
      const Tensor loss = rank.model.loss_sum(x.slice(begin, end), y.slice(begin, end));
      rank.micro(loss, Sync::now, static_cast<double>(end - begin));
      rank.step(rank.finish());
      const double sum = sum_over_ranks(comm, loss.item());
      if (comm.rank() == 0) losses.push_back(static_cast<float>(sum));
    }
  });
  return losses;
}

TEST_P(SyncBatchNorm, TrainsOnSeveralRanksAsOnOneWithTheWholeBatch) {
  const Floats whole = curve(GetParam(), 1, false);
  EXPECT_LT(whole.back(), 0.8 * whole.front());
  for (int ranks : {2, 3, 4}) {
    const Floats synced = curve(GetParam(), ranks, true), apart = curve(GetParam(), ranks, false);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(synced[i], whole[i], 1e-5 * whole[i]);
    EXPECT_GT(std::abs(apart.back() - whole.back()), 1e-2 * whole.back())
        << "statistics of a rank's own batch are another model";
  }
}

TEST_P(SyncBatchNorm, IsConvertedBothWays) {
  run_ranks(2, {.backend = GetParam()}, [](Communicator& comm) {
    NormedNet net(1);
    EXPECT_FALSE(net.norm().joined());
    EXPECT_EQ(sync_batch_norms(net, comm), 1);
    EXPECT_TRUE(net.norm().joined());
    EXPECT_EQ(unsync_batch_norms(net), 1);
    EXPECT_FALSE(net.norm().joined());
    layers::Initialiser init(1);
    layers::Linear linear(init, 2, 2);
    EXPECT_EQ(sync_batch_norms(linear, comm), 0);
  });
}

class KnownFaultsOfNorms : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, KnownFaultsOfNorms, ::testing::Values("threads", "virtual"));

TEST_P(KnownFaultsOfNorms, O14_SyncBatchNormOfUnequalRanks) {
  const auto parts = over_ranks(GetParam(), of({2, 4, 6, 8}), of({1, 0, 0, 0}), {3, 1});
  for (const Outcome& part : parts) {
    EXPECT_NEAR(part.mean[0], 0.5, 1e-6) << "not the average of the ranks' means";
    EXPECT_NEAR(part.variance[0], 1.5666667, 1e-6);
  }
  EXPECT_NEAR(values(parts[1].y)[0], 3 / std::sqrt(5 + 1e-5), 1e-6) << "the biased variance is 5";
}
TEST_P(KnownFaultsOfNorms, O14_SyncBatchNormWithAnEmptyRank) {
  const auto parts = over_ranks(GetParam(), of({1, 3}), of({1, 0}), {2, 0});
  for (const Outcome& part : parts) {
    EXPECT_NEAR(part.mean[0], 0.2, 1e-6);
    EXPECT_NEAR(part.variance[0], 1.1, 1e-6);
  }
  EXPECT_EQ(parts[1].dx.shape(), (Shape{0, 1}));
  EXPECT_EQ(values(parts[1].dweight), Floats{0});
}
TEST_P(KnownFaultsOfNorms, O14_SyncBatchNormWithEmptyRanksOnly) {
  for (const Outcome& part : over_ranks(GetParam(), zeros({0, 1}), zeros({0, 1}), {0, 0})) {
    EXPECT_EQ(part.mean, Floats{0});
    EXPECT_EQ(part.variance, Floats{1});
    EXPECT_EQ(part.batches, 0);
  }
}
TEST_P(KnownFaultsOfNorms, O14_SyncBatchNormOfOneValuePerRank) {
  for (const Outcome& part : over_ranks(GetParam(), of({1, 3}), of({1, 0}), {1, 1})) {
    EXPECT_NEAR(part.mean[0], 0.2, 1e-6);
    EXPECT_NEAR(part.variance[0], 1.1, 1e-6);
  }
}
TEST_P(KnownFaultsOfNorms, O14_OneValueOverAllRanksIsAnErrorOnAll) {
  run_ranks(2, {.backend = GetParam()}, [](Communicator& comm) {
    layers::Initialiser init(1);
    BatchNorm norm(init, 1);
    sync_batch_norms(norm, comm);
    EXPECT_EQ(error_of([&] {
                norm(zeros({1 - comm.rank(), 1}));
              }),
              fmt::format("[layers.batch_norm] training; expected more than one value a channel "
                          "over all ranks, got [{}, 1] here",
                          1 - comm.rank()));
    EXPECT_EQ(values(norm.running_variance()), Floats{1});
  });
}

TEST_P(KnownFaultsOfNorms, O15_PermutedInputOverTwoRanks) {
  // Memory 0 … 7 as [N][L][C], copied to [N, C, L]; a rank holds one n.
  const Tensor x = from_values<float>({0, 2, 1, 3, 4, 6, 5, 7}, {2, 2, 2});
  const auto parts =
      over_ranks(GetParam(), x, randn({2, 2, 2}, 1), {1, 1}, {.eps = 1e-12f, .momentum = 1});
  for (const Outcome& part : parts) {
    EXPECT_EQ(part.mean, (Floats{3, 4})) << "not 2.5 and 4.5";
    for (float v : part.variance) EXPECT_NEAR(v, 5 * 4.0 / 3, 1e-5);
  }
  EXPECT_NEAR(values(parts[0].y)[0], -3 / std::sqrt(5.0), 1e-6);
  EXPECT_NEAR(values(parts[1].y)[3], 3 / std::sqrt(5.0), 1e-6);
}

// Buffers and no parameters.
class Bare final : public Module {
 public:
  Bare() : init_(1), norm(init_, 1, {.affine = false}) { add_child("norm", norm); }

 private:
  layers::Initialiser init_;

 public:
  BatchNorm norm;
};

TEST_P(KnownFaultsOfNorms, O16_BuffersAreMadeEqualByAveragingThem) {
  run_ranks(2, {.backend = GetParam()}, [](Communicator& comm) {
    Bare model;
    ASSERT_TRUE(model.parameters().empty());
    const float mean = 10.0f * static_cast<float>(comm.rank());
    model.norm(of({mean - 1, mean + 1}));
    EXPECT_EQ(values(model.norm.running_mean())[0], static_cast<float>(comm.rank()));
    const Floats own = values(model.norm.running_variance());
    BufferSync buffers(model.buffers(), comm);
    buffers.before_evaluation();
    EXPECT_EQ(values(model.norm.running_mean()), Floats{0.5});
    EXPECT_EQ(model.norm.batches(), 1);
    buffers.after_evaluation();
    EXPECT_EQ(values(model.norm.running_mean())[0], static_cast<float>(comm.rank()))
        << "then a rank's own again";
    EXPECT_EQ(values(model.norm.running_variance()), own);
    buffers.make_equal();
    EXPECT_EQ(values(model.norm.running_mean()), Floats{0.5});
  });
}

TEST_P(KnownFaultsOfNorms, O16_EvaluationIsTheSameOnAllRanksAndThatOfTheSavedModel) {
  std::vector<Floats> outputs(2), saved(2), reloaded(2);
  run_ranks(2, {.backend = GetParam()}, [&](Communicator& comm) {
    const auto rank_number = static_cast<size_t>(comm.rank());
    Rank<NormedNet> rank(comm, {}, kPlainSgd, 7);
    BufferSync buffers(rank.model.buffers(), comm);
    rank.reducer.add_buffers(buffers);
    for (int step = 0; step < 3; ++step) {
      const auto seed = static_cast<uint64_t>(10 + comm.rank() + 2 * step);
      rank.micro(rank.model.loss_sum(randn({6, 4}, seed), randn({6, 2}, seed + 100)), Sync::now,
                 60);
      rank.step(rank.finish());
    }
    const Floats own = values(rank.model.norm().running_mean());
    const Tensor x = randn({5, 4}, 1);
    std::vector<Tensor> copies;  // what a saved model holds
    {
      const autograd::NoGrad no_grad;
      const auto evaluating = rank.reducer.evaluating(*rank.optimizer);
      rank.model.set_mode(Module::Mode::evaluate);
      outputs[rank_number] = values(rank.model(x));
      for (const layers::Buffer& b : rank.model.buffers()) {
        copies.push_back(empty_like(*b.slot));
        kernel::copy(copies.back(), *b.slot);
      }
      saved[rank_number] = values(copies[0]);
    }
    EXPECT_EQ(values(rank.model.norm().running_mean()), own);
    NormedNet loaded(1);
    const auto parameters = loaded.parameters(), trained = rank.model.parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      kernel::copy(*parameters[i].slot, *trained[i].slot);
    const auto into = loaded.buffers();
    for (size_t i = 0; i < into.size(); ++i) kernel::copy(*into[i].slot, copies[i]);
    loaded.set_mode(Module::Mode::evaluate);
    const autograd::NoGrad no_grad;
    reloaded[rank_number] = values(loaded(x));
  });
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(saved[0], saved[1]);
  EXPECT_EQ(reloaded[0], outputs[0]);
  EXPECT_EQ(reloaded[1], outputs[0]);
}

TEST_P(KnownFaultsOfNorms, O16_RanksWhoseBuffersDifferInNameAreToldSo) {
  run_ranks(2, {.backend = GetParam()}, [](Communicator& comm) {
    Bare bare;
    NormedNet net(1);
    Module& model = comm.rank() == 0 ? static_cast<Module&>(bare) : net;
    EXPECT_THROW(BufferSync(model.buffers(), comm), SystemError);
  });
}

}  // namespace
}  // namespace lockstep::distributed

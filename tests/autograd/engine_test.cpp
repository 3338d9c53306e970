// The engine: order, leaves, memory, errors. Operations have their own tests.
#include "autograd/graph.h"

#include <gtest/gtest.h>

#include <thread>

#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "core/parallel.h"
#include "tests/support/error_of.h"

namespace lockstep::autograd {
namespace {

using test::error_of;
using Floats = std::vector<float>;

Tensor leaf(const Floats& v, const Shape& shape) {
  Tensor x = from_values(v, shape);
  require_grad(x);
  return x;
}
Tensor leaf(const Floats& v) { return leaf(v, {static_cast<int64_t>(v.size())}); }

// Counts its backward calls and passes the gradient on, or fails, as told.
struct Probe {
  int* calls = nullptr;
  bool fails = false;
};
struct ProbeNode final : Node {
  Probe probe;
  std::string_view name() const override { return "probe"; }
  Tensors backward(const Tensors& dy) override {
    ++*probe.calls;
    check(!probe.fails, "[test.probe] fails on purpose");
    return {dy[0], dy[0]};
  }
};
Tensor probed(const Tensor& a, const Tensor& b, Probe probe) {
  Tensor y = empty_like(a);
  kernel::copy(y, a);
  return record<ProbeNode>(y, {a, b}, [&](ProbeNode& n) { n.probe = probe; });
}

// Two outputs of one node.
struct SplitNode final : Node {
  bool* second_defined = nullptr;
  std::string_view name() const override { return "split"; }
  Tensors backward(const Tensors& dy) override {
    *second_defined = dy[1].defined();
    return {dy[0]};
  }
};

TEST(Engine, ChainRule) {
  const Tensor x = leaf({3}, {});
  backward(ops::unary(ops::scale(x, 2), kernel::Unary::square));  // (2x)²
  EXPECT_EQ(values(grad(x)), Floats{24});
}

TEST(Engine, SeedIsTheGradientOfTheResult) {
  const Tensor x = leaf({1, 2, 3});
  backward(ops::scale(x, 2), from_values<float>({1, 10, 100}));
  EXPECT_EQ(values(grad(x)), (Floats{2, 20, 200}));
}

TEST(Engine, DiamondSumsBothSides) {
  const Tensor x = leaf({5}, {});
  const Tensor shared = ops::scale(x, 2);
  backward(ops::add(ops::scale(shared, 3), ops::scale(shared, 4)));
  EXPECT_EQ(values(grad(x)), Floats{14});
}

TEST(Engine, DiamondOfManySidesRunsTheSharedNodeOnce) {
  int calls = 0;
  const Tensor x = leaf({1}, {});
  const Tensor shared = probed(x, {}, {&calls});
  Tensor y = shared;
  for (int i = 0; i < 9; ++i) y = ops::add(y, shared);
  backward(y);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(values(grad(x)), Floats{10});
}

TEST(Engine, SameTensorTwiceInOneOperation) {
  const Tensor x = leaf({3, 4});
  backward(ops::sum(ops::multiply(x, x)));
  EXPECT_EQ(values(grad(x)), (Floats{6, 8}));
}

TEST(Engine, GradientPassedOnTwiceIsNotWrittenTo) {
  // add gives the same dy to both sides; a and b each collect more than that.
  const Tensor a = leaf({1}), b = leaf({1});
  const Tensor y = ops::add(a, b);
  const Tensor z = ops::add(ops::scale(a, 10), ops::scale(b, 100));
  backward(ops::sum(ops::add(y, z)));
  EXPECT_EQ(values(grad(a)), Floats{11});
  EXPECT_EQ(values(grad(b)), Floats{101});
}

TEST(Engine, LatestRecordedRunsFirst) {
  std::vector<int> order;
  Tensor leaves[3] = {leaf({1}, {}), leaf({1}, {}), leaf({1}, {})};
  for (int i = 0; i < 3; ++i) leaf_of(leaves[i]).on_ready = [&order, i] { order.push_back(i); };
  Tensor y = ops::scale(leaves[0], 1);
  y = ops::add(y, ops::scale(leaves[1], 1));
  y = ops::add(y, ops::scale(leaves[2], 1));
  backward(y);
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
}

TEST(Engine, LeafIsReadyWhenItsLastContributionLands) {
  // w is used early and late (a tied weight); v only in between: v is ready first.
  std::vector<char> order;
  const Tensor w = leaf({2}, {}), v = leaf({3}, {});
  leaf_of(w).on_ready = [&] { order.push_back('w'); };
  leaf_of(v).on_ready = [&] { order.push_back('v'); };
  const Tensor early = ops::multiply(w, from_values<float>({5}, {}));
  backward(ops::multiply(ops::multiply(early, v), w));  // 5 w² v
  EXPECT_EQ(order, (std::vector<char>{'v', 'w'}));
  EXPECT_EQ(values(grad(w)), Floats{60});
  EXPECT_EQ(values(grad(v)), Floats{20});
}

TEST(Engine, FirstLandingOverwritesLaterOnesAdd) {
  const Tensor x = leaf({1, 1});
  Leaf& side = leaf_of(x);
  side.grad = full({2}, std::numeric_limits<double>::quiet_NaN());
  const Tensor buffer = side.grad;
  backward(ops::sum(ops::scale(x, 2)));
  EXPECT_EQ(values(buffer), (Floats{2, 2})) << "lands in the tensor that was given";
  backward(ops::sum(ops::scale(x, 3)));
  EXPECT_EQ(values(buffer), (Floats{5, 5}));
  side.landing = Landing::overwrite;
  backward(ops::sum(ops::scale(x, 7)));
  EXPECT_EQ(values(buffer), (Floats{7, 7}));
}

TEST(Engine, LandsDirectlyWhereItOverwritesAlone) {
  // A matrix product writes its gradient into the leaf's own; the result is the same either way.
  const Tensor w = leaf({1, 2, 3, 4, 5, 6}, {2, 3}),
               x = from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  leaf_of(w).grad = full({2, 3}, std::numeric_limits<double>::quiet_NaN());
  const Tensor given = leaf_of(w).grad;
  backward(ops::sum(ops::linear(x, w)));
  EXPECT_EQ(values(given), (Floats{5, 7, 9, 5, 7, 9}));
  backward(ops::sum(ops::add(ops::linear(x, w), ops::linear(x, w))));
  EXPECT_EQ(values(given), (Floats{15, 21, 27, 15, 21, 27})) << "added";
  leaf_of(w).landing = Landing::overwrite;
  backward(ops::sum(ops::add(ops::linear(x, w), ops::scale(ops::linear(x, w), 2))));
  EXPECT_EQ(values(given), (Floats{15, 21, 27, 15, 21, 27})) << "two contributions overwrite";
}

TEST(Engine, GradientOfATiedWeightLandsOnce) {
  int landings = 0;
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2});
  leaf_of(w).on_ready = [&] { ++landings; };
  backward(ops::sum(ops::linear(ops::linear(ops::linear(full({1, 2}, 1), w), w), w)));
  EXPECT_EQ(landings, 1);
}

TEST(Engine, GradientsNobodyNeedsAreNotComputed) {
  int calls = 0;
  const Tensor x = leaf({1}, {});
  const Tensor constant = probed(full({}, 1), {}, {&calls});
  EXPECT_FALSE(requires_grad(constant));
  backward(ops::multiply(x, constant));
  EXPECT_EQ(calls, 0);
}

TEST(Engine, UnusedOutputArrivesUndefined) {
  const Tensor x = leaf({1, 2});
  Tensor first = empty_like(x), second = empty_like(x);
  kernel::copy(first, x);
  kernel::copy(second, x);
  bool second_defined = true;
  record<SplitNode>({&first, &second}, {x},
                    [&](SplitNode& n) { n.second_defined = &second_defined; });
  backward(ops::sum(first));
  EXPECT_FALSE(second_defined);
  EXPECT_EQ(values(grad(x)), (Floats{1, 1}));
}

TEST(Engine, LeafThatNothingReachedIsLeftAlone) {
  int ready = 0;
  const Tensor x = leaf({1}, {}), unused = leaf({1}, {});
  leaf_of(unused).on_ready = [&] { ++ready; };
  backward(ops::scale(x, 1));
  EXPECT_EQ(ready, 0);
  EXPECT_FALSE(grad(unused).defined());
}

TEST(Engine, BackwardFromALeafLandsItsSeed) {
  const Tensor x = leaf({1, 2});
  backward(x, from_values<float>({3, 4}));
  EXPECT_EQ(values(grad(x)), (Floats{3, 4}));
}

TEST(Engine, NonScalarNeedsASeed) {
  const Tensor x = leaf({1, 2});
  EXPECT_EQ(error_of([&] { backward(ops::scale(x, 1)); }),
            "[autograd.backward] no gradient given; expected a tensor of one element, got f32 [2]");
  EXPECT_EQ(error_of([&] { backward(ops::scale(x, 1), full({3}, 1)); }),
            "[autograd.backward] gradient given; expected f32 [2], got f32 [3]");
}

TEST(Engine, NothingToDifferentiateIsAnError) {
  EXPECT_THROW(backward(full({}, 1)), UsageError);
  EXPECT_THROW(backward(ops::scale(full({}, 1), 2)), UsageError);
}

TEST(Engine, LeavesAreLeavesOnly) {
  const Tensor x = leaf({1});
  EXPECT_EQ(&require_grad(x), &leaf_of(x)) << "idempotent";
  const Tensor y = ops::scale(x, 1);
  EXPECT_EQ(error_of([&] { require_grad(y); }),
            "[autograd.require_grad] expected a leaf, got the result of scale; detach() it first");
  EXPECT_THROW(leaf_of(y), UsageError);
  EXPECT_THROW(leaf_of(full({1}, 1)), UsageError);
  EXPECT_THROW(require_grad(zeros({1}, DType::i32)), UsageError);
}

TEST(NoGrad, NestsAndEndsWithItsScope) {
  const Tensor x = leaf({1});
  EXPECT_TRUE(recording());
  {
    const NoGrad outer;
    {
      const NoGrad inner;
      EXPECT_FALSE(requires_grad(ops::scale(x, 1)));
    }
    EXPECT_FALSE(recording());
    EXPECT_FALSE(requires_grad(ops::scale(x, 1)));
  }
  EXPECT_TRUE(requires_grad(ops::scale(x, 1)));
}

TEST(NoGrad, EndsWithAnException) {
  EXPECT_THROW(
      {
        const NoGrad off;
        throw UsageError("x");
      },
      UsageError);
  EXPECT_TRUE(recording());
}

TEST(NoGrad, IsOfTheThread) {
  const NoGrad off;
  bool other = false;
  std::thread([&] { other = recording(); }).join();
  EXPECT_TRUE(other);
}

TEST(Saved, WrittenInPlaceBeforeBackwardIsAnError) {
  const Tensor x = leaf({1, 2});
  const Tensor h = ops::scale(x, 1);
  const Tensor y = ops::sum(ops::unary(h, kernel::Unary::square));
  const uint64_t before = h.version();
  kernel::fill(h, 7);
  EXPECT_EQ(
      error_of([&] { backward(y); }),
      fmt::format(
          "[autograd.square] a tensor (f32 [2]) saved for backward was written in place since; "
          "expected version {}, got {}",
          before, before + 1));
  EXPECT_FALSE(grad(x).defined());
}

TEST(Saved, ResultWrittenInPlaceIsAnErrorWhereItIsNeeded) {
  const Tensor x = leaf({1, 2});
  const Tensor y = ops::unary(x, kernel::Unary::exp);
  kernel::scale(y, y, 2);  // through the handle that the operation returned
  EXPECT_THROW(backward(ops::sum(y)), UsageError);
}

TEST(Saved, WriteThroughAViewCountsToo) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor h = ops::scale(x, 1);
  const Tensor y = ops::sum(ops::unary(h, kernel::Unary::square));
  kernel::fill(h.slice(0, 1), 7);
  EXPECT_THROW(backward(y), UsageError);
}

TEST(Saved, SliceAsRootHasAVersionOfItsOwn) {
  // As in a flat buffer: a step on one parameter does not spoil the graph of another.
  const Tensor flat = full({4}, 2);
  const Tensor a = flat.slice_as_root(0, {2}), b = flat.slice_as_root(2, {2});
  require_grad(a);
  const Tensor y = ops::sum(ops::unary(a, kernel::Unary::square));
  kernel::fill(b, 0);
  backward(y);
  EXPECT_EQ(values(grad(a)), (Floats{4, 4}));
}

TEST(Saved, IsReleasedAsBackwardGoesThoughTheResultStays) {
  const Tensor x = leaf(Floats(1 << 16, 1.0f));
  leaf_of(x).grad = empty_like(x);
  // gelu saves what scale gave and nobody else holds
  const auto forward = [&] { return ops::gelu(ops::scale(x, 2)); };
  backward(ops::sum(forward()));  // small objects come from the pool from here on
  const Tensor y = forward();
  const int64_t before = host_allocator().stats().live;
  backward(ops::sum(y));
  EXPECT_LE(host_allocator().stats().live, before - (1 << 18));
}

// Saves a tensor that is none of its inputs.
struct KeepNode final : Node {
  Saved kept;
  std::string_view name() const override { return "keep"; }
  Tensors backward(const Tensors& dy) override { return {dy[0]}; }
};

TEST(Saved, KeepsATensorButNotItsGraph) {
  const Tensor x = leaf({1}, {});
  const int64_t nodes = live_nodes();
  Tensor y = ops::scale(x, 1);
  for (int i = 0; i < 10; ++i)
    y = record<KeepNode>(full({}, i), {x}, [&](KeepNode& n) { n.kept = y; });
  EXPECT_EQ(live_nodes(), nodes + 1);
}

TEST(Memory, OperationsDoNotOwnThemselves) {
  const int64_t nodes = live_nodes();
  const int64_t bytes = host_allocator().stats().live;
  {
    const Tensor x = leaf(Floats(1 << 16, 1.0f));
    const Tensor y = ops::unary(x, kernel::Unary::exp);  // saves its own result
    const Tensor z = ops::softmax(y);
    EXPECT_EQ(live_nodes(), nodes + 3);
  }
  EXPECT_EQ(live_nodes(), nodes);
  EXPECT_LT(host_allocator().stats().live, bytes + (1 << 15));
}

TEST(Memory, FinishedNodesGoThoughTheLossStays) {
  const Tensor x = leaf({1}, {});
  const int64_t nodes = live_nodes();
  Tensor y = x;
  for (int i = 0; i < 100; ++i) y = ops::scale(y, 1);
  EXPECT_EQ(live_nodes(), nodes + 100);
  backward(y);
  EXPECT_EQ(live_nodes(), nodes + 1);
}

TEST(Memory, AWarmStepAsksTheSystemForNothing) {
  const Tensor w = leaf(Floats(256, 0.1f), {16, 16}), x = full({4, 16}, 1);
  const auto step = [&] {
    Tensor h = x;
    for (int i = 0; i < 10; ++i) h = ops::gelu(ops::linear(h, w));
    backward(ops::sum(h));
    leaf_of(w).landing = Landing::overwrite;
  };
  for (int i = 0; i < 3; ++i) step();
  const int64_t calls = host_allocator().stats().system_calls;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(host_allocator().stats().system_calls, calls);
}

TEST(Depth, AMillionNodesNeitherRecurseInBackwardNorInRelease) {
  const Tensor x = leaf({1}, {});
  const int64_t nodes = live_nodes();
  const auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = ops::scale(y, 1);
    return y;
  };
  { const Tensor dropped = chain(); }
  EXPECT_EQ(live_nodes(), nodes);
  const Tensor y = chain();
  backward(y);
  EXPECT_EQ(values(grad(x)), Floats{1});
  EXPECT_EQ(live_nodes(), nodes + 1);
}

TEST(Depth, AMillionNodesWithSavedTensorsAndTwoSides) {
  const Tensor x = leaf({1}, {});
  const int64_t nodes = live_nodes();
  {
    Tensor y = x;
    for (int i = 0; i < 500'000; ++i) y = ops::multiply(y, ops::unary(y, kernel::Unary::relu));
  }
  EXPECT_EQ(live_nodes(), nodes);
}

TEST(Errors, SecondBackwardThroughAFreedGraph) {
  const Tensor x = leaf({1}, {});
  const Tensor h = ops::scale(x, 2);
  backward(ops::scale(h, 3));
  EXPECT_EQ(error_of([&] { backward(ops::scale(h, 4)); }),
            "[autograd.backward] the graph at scale was freed by an earlier backward; run the "
            "forward again, or add "
            "the losses and call backward once");
  EXPECT_EQ(values(grad(x)), Floats{6}) << "nothing of the refused backward landed";
}

TEST(Errors, ExceptionInBackwardLeavesNothingBehind) {
  int calls = 0;
  const Tensor x = leaf({1}, {}), w = leaf({1}, {});
  const int64_t nodes = live_nodes();
  {
    const Tensor h = ops::scale(x, 2);
    const Tensor broken = probed(h, w, {&calls, true});
    const Tensor y =
        ops::add(broken, ops::scale(h, 5));  // h has a contribution when the probe fails
    EXPECT_EQ(error_of([&] { backward(y); }), "[test.probe] fails on purpose");
    backward(
        ops::add(ops::scale(h, 1), ops::scale(w, 4)));  // the part that did not run works still
  }
  EXPECT_EQ(values(grad(x)), Floats{2});
  EXPECT_EQ(values(grad(w)), Floats{4});
  EXPECT_EQ(live_nodes(), nodes);
}

TEST(Errors, ExceptionInOnReadyPassesThrough) {
  const Tensor x = leaf({1}, {});
  leaf_of(x).on_ready = [] { throw SystemError(Fault::communication, "peer"); };
  EXPECT_THROW(backward(ops::scale(x, 2)), SystemError);
  leaf_of(x).on_ready = nullptr;
  leaf_of(x).landing = Landing::overwrite;
  backward(ops::scale(x, 3));
  EXPECT_EQ(values(grad(x)), Floats{3});
}

TEST(Errors, BackwardInsideBackwardOfTheSameGraphIsRefused) {
  const Tensor x = leaf({1}, {}), w = leaf({1}, {});
  const Tensor h = ops::scale(x, 2);
  const Tensor y = ops::add(h, w);
  std::string text;
  leaf_of(w).on_ready = [&] { text = error_of([&] { backward(h); }); };
  backward(y);
  EXPECT_EQ(text,
            "[autograd.backward] the graph at scale is in use by a backward that is still running");
  EXPECT_EQ(values(grad(x)), Floats{2});
}

TEST(Errors, BackwardInsideBackwardOfAnotherGraphWorks) {
  const Tensor x = leaf({1}, {}), v = leaf({1}, {});
  leaf_of(x).on_ready = [&] { backward(ops::scale(v, 5)); };
  backward(ops::scale(x, 2));
  EXPECT_EQ(values(grad(x)), Floats{2});
  EXPECT_EQ(values(grad(v)), Floats{5});
}

TEST(Threads, EachTrainsAGraphOfItsOwn) {
  std::vector<Floats> results(4);
  const auto train = [&](int rank) {
    const ThreadBudget one(1);
    const Tensor w = from_values<float>({0.5f, -0.25f, 0.125f, 1}, {2, 2});
    require_grad(w);
    for (int step = 0; step < 200; ++step) {
      const Tensor x = full({3, 2}, 0.01 * step);
      Tensor h = ops::gelu(ops::linear(x, w));
      h = ops::multiply(h, h);
      backward(ops::sum(ops::add(h, ops::linear(h, w))));
      leaf_of(w).landing = Landing::overwrite;
      kernel::add_scaled(w, grad(w), -0.01f);
    }
    results[rank] = values(w);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back(train, rank);
  for (auto& t : threads) t.join();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(results[rank], results[0]);
}

TEST(Threads, AGraphMayContinueOnAnotherThread) {
  const Tensor x = leaf({1}, {});
  Tensor h = x;
  for (int i = 0; i < 10; ++i) h = ops::scale(h, 2);
  Tensor y;
  std::thread([&] { y = ops::scale(ops::add(h, h), 1); }).join();  // its sequence starts lower
  backward(ops::add(y, h));
  EXPECT_EQ(values(grad(x)), Floats{3 * 1024});
}

}  // namespace
}  // namespace lockstep::autograd

#include "core/memory_state.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

struct Thing {
  Tensor weights = from_values<float>({1, 2, 3});
  int64_t steps = 7;
  double rate = 0.1;
  void state(StateIo& io) {
    io.flat("weights", weights, Fold::replicated);
    io.value("steps", steps, Fold::replicated);
    io.value("rate", rate, Fold::per_rank);
  }
};

MemoryState kept(Thing& thing) {
  MemoryState state;
  state.save([&](StateIo& io) { thing.state(io); });
  return state;
}

TEST(MemoryState, BringsBackWhatItSaw) {
  Thing thing;
  const MemoryState state = kept(thing);
  EXPECT_EQ(state.names(), (std::vector<std::string>{"rate", "steps", "weights"}));
  Thing other{.weights = zeros({3}), .steps = 0, .rate = 0};
  EXPECT_FALSE(kept(other) == state);
  thing.weights.mutable_data<float>()[0] = 9;  // a copy was kept
  state.load([&](StateIo& io) { other.state(io); });
  EXPECT_EQ(values(other.weights), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(other.steps, 7);
  EXPECT_EQ(other.rate, 0.1);
  EXPECT_TRUE(kept(other) == state);
}

TEST(MemoryState, ComparesBits) {
  Thing a, b;
  a.rate = b.rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(kept(a) == kept(b));
  a.rate = 0.0;
  b.rate = -0.0;
  EXPECT_FALSE(kept(a) == kept(b));
}

TEST(MemoryState, RefusesWhatDoesNotFit) {
  Thing thing;
  MemoryState state = kept(thing);
  const auto load = [&](auto walk) { state.load(walk); };
  Thing other{.weights = zeros({4})};
  EXPECT_THROW(load([&](StateIo& io) { other.state(io); }), UsageError) << "another shape";
  EXPECT_THROW(load([&](StateIo& io) { io.value("steps", other.steps, Fold::replicated); }),
               UsageError)
      << "not everything was asked for";
  EXPECT_THROW(load([&](StateIo& io) { io.value("extra", other.steps, Fold::replicated); }),
               UsageError)
      << "missing";
  EXPECT_THROW(load([&](StateIo& io) { io.value("rate", other.steps, Fold::replicated); }),
               UsageError)
      << "another kind";
  EXPECT_THROW(state.save([&](StateIo& io) {
    thing.state(io);
    io.value("rate", thing.rate, Fold::replicated);
  }),
               UsageError)
      << "twice";
}

}  // namespace
}  // namespace lockstep

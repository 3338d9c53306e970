#include "layers/module.h"

#include <gtest/gtest.h>

#include "autograd/leaf.h"

namespace lockstep::layers {
namespace {

struct Leafy final : Module {
  Tensor weight = zeros({2, 3}), bias = zeros({3});
  Leafy() {
    add_parameter("weight", weight, Decay::yes);
    add_parameter("bias", bias, Decay::no);
  }
};
struct Pair final : Module {
  Leafy first, second;
  Tensor scale = zeros({1});
  Pair() {
    add_child("first", first);
    add_parameter("scale", scale, Decay::no);
    add_child("second", second);
    tie("head.weight", "second.weight");
  }
};
struct Nested final : Module {
  Pair pair;
  Nested() { add_child("pair", pair); }
};

TEST(Module, ParametersComeInOrderOfConstructionWithDottedNames) {
  Nested nested;
  std::vector<std::string> names;
  for (const Parameter& p : nested.parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"pair.first.weight", "pair.first.bias", "pair.scale",
                                             "pair.second.weight", "pair.second.bias"}));
  EXPECT_EQ(parameter_count(nested), 2 * (6 + 3) + 1);
}

TEST(Module, ParametersAreLeavesBehindTheirHandles) {
  Nested nested;
  for (const Parameter& p : nested.parameters()) EXPECT_TRUE(autograd::requires_grad(*p.slot));
  *nested.parameters()[0].slot = full({2, 3}, 7);  // what FlatParams does
  EXPECT_EQ(nested.pair.first.weight.data<float>()[0], 7);
}

TEST(Module, ATiedParameterAppearsOnceWithItsAlias) {
  Nested nested;
  for (const Parameter& p : nested.parameters())
    EXPECT_EQ(p.aliases, p.name == "pair.second.weight"
                             ? std::vector<std::string>{"pair.head.weight"}
                             : std::vector<std::string>{});
}

TEST(Module, DecayIsForWhatAskedForIt) {
  Leafy leafy;
  EXPECT_TRUE(leafy.parameters()[0].decay);
  EXPECT_FALSE(leafy.parameters()[1].decay);
}

TEST(Module, ModeReachesTheWholeTree) {
  Nested nested;
  EXPECT_EQ(nested.pair.first.mode(), Module::Mode::train);
  nested.set_mode(Module::Mode::evaluate);
  EXPECT_EQ(nested.pair.first.mode(), Module::Mode::evaluate);
  nested.set_mode(Module::Mode::train);
  EXPECT_EQ(nested.pair.second.mode(), Module::Mode::train);
}

struct Counting final : Module {
  Tensor mean = zeros({2}), count = zeros({}, DType::i64);
  Leafy leafy;
  Counting() {
    add_child("leafy", leafy);
    add_buffer("mean", mean);
    add_buffer("count", count);
  }
};
struct Outer final : Module {
  Counting inner;
  Tensor own = full({1}, 3);
  Outer() {
    add_child("inner", inner);
    add_buffer("own", own);
  }
};

TEST(Module, BuffersHaveDottedNamesAndAreNoParameters) {
  Outer outer;
  std::vector<std::string> names, modules;
  for (const Buffer& b : outer.buffers()) {
    names.push_back(b.name);
    EXPECT_FALSE(autograd::requires_grad(*b.slot));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"own", "inner.mean", "inner.count"}));
  EXPECT_EQ(outer.parameters().size(), 2u);
  outer.visit([&](const std::string& name, Module&) { modules.push_back(name); });
  EXPECT_EQ(modules, (std::vector<std::string>{"", "inner", "inner.leafy"}));
}

TEST(Module, BuffersAreStateThatCanBeSavedAndLoaded) {
  struct Marks final : StateIo {
    std::vector<std::string> names;
    void flat(const std::string& name, Tensor& value, Fold fold) override {
      EXPECT_EQ(fold, Fold::replicated);
      names.push_back(name);
      if (name == "inner.mean") value.mutable_data<float>()[1] = 5;  // as loading does
    }
    void value(const std::string&, int64_t&, Fold) override {}
    void value(const std::string&, double&, Fold) override {}
  } io;
  Outer outer;
  buffer_state(outer, io);
  EXPECT_EQ(io.names, (std::vector<std::string>{"own", "inner.mean", "inner.count"}));
  EXPECT_EQ(outer.inner.mean.data<float>()[1], 5);
}

TEST(Module, ABufferMayNotBeNamedAsAParameterNorHoldHalves) {
  struct Twice final : Module {
    Tensor a = zeros({1}), b = zeros({1});
    Twice() {
      add_parameter("w", a, Decay::no);
      add_buffer("w", b);
    }
  } twice;
  EXPECT_THROW(twice.buffers(), UsageError);
  struct Halves final : Module {
    Tensor a = zeros({1}, DType::f16);
    Halves() { add_buffer("a", a); }
  };
  EXPECT_THROW(Halves(), UsageError);
}

TEST(Module, ClashingAndMissingNamesAreErrors) {
  struct Twice final : Module {
    Tensor a = zeros({1}), b = zeros({1});
    Twice() {
      add_parameter("w", a, Decay::no);
      add_parameter("w", b, Decay::no);
    }
  } twice;
  EXPECT_THROW(twice.parameters(), UsageError);
  struct Untied final : Module {
    Untied() { tie("a", "b"); }
  } untied;
  EXPECT_THROW(untied.parameters(), UsageError);
  struct Unnamed final : Module {
    Tensor a = zeros({1});
    Unnamed() { add_parameter("", a, Decay::no); }
  };
  EXPECT_THROW(Unnamed(), UsageError);
}

}  // namespace
}  // namespace lockstep::layers

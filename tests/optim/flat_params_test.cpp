#include "optim/flat_params.h"

#include "optim/optimizer.h"

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/precision.h"

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

using test::error_of;

// weight [2, 3] = 0 … 5 and bias [2] = 10, 11.
struct Layer : layers::Module {
  Layer() {
    add_parameter("weight", weight, Decay::yes);
    add_parameter("bias", bias, Decay::no);
  }
  Tensor weight = from_values<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  Tensor bias = from_values<float>({10, 11});
};
struct Model : layers::Module {
  Model() {
    add_parameter("table", table, Decay::yes);
    add_child("layer", layer);
    tie("head.weight", "table");
  }
  Tensor table = from_values<float>({20, 21, 22}, {1, 3});
  Layer layer;
};

TEST(FlatParams, LaysOutValuesInReverseOrderOfConstruction) {
  Model model;
  const FlatParams flat(model);
  EXPECT_EQ(values(flat.all().param), (std::vector<float>{10, 11, 0, 1, 2, 3, 4, 5, 20, 21, 22}));
  EXPECT_EQ(values(flat.all().grad), std::vector<float>(11, 0.0f));
  ASSERT_EQ(flat.slices().size(), 3u);
  const auto expect = [&](int slice, const std::string& name, int64_t begin, int64_t end,
                          const Shape& shape, bool decay) {
    const ParamSlice& s = flat.slices()[slice];
    EXPECT_EQ(s.name, name);
    EXPECT_EQ(s.begin, begin);
    EXPECT_EQ(s.end, end);
    EXPECT_EQ(s.shape, shape);
    EXPECT_EQ(s.decay, decay);
    EXPECT_EQ(flat.param(slice).shape(), shape);
  };
  expect(0, "layer.bias", 0, 2, {2}, false);
  expect(1, "layer.weight", 2, 8, {2, 3}, true);
  expect(2, "table", 8, 11, {1, 3}, true);
}

TEST(FlatParams, SwapsTheModulesHandlesForViews) {
  Model model;
  const FlatParams flat(model);
  flat.all().param.mutable_data<float>()[3] = 7;
  EXPECT_EQ(values(model.layer.weight), (std::vector<float>{0, 7, 2, 3, 4, 5}));
  EXPECT_TRUE(model.layer.weight.is(flat.param(1)));
}

TEST(FlatParams, GradientsLandInTheFlatBuffer) {
  Model model;
  const FlatParams flat(model);
  const Tensor x = from_values<float>({1, 2, 3}, {1, 3});
  autograd::backward(ops::sum(ops::linear(x, model.layer.weight, model.layer.bias)));
  EXPECT_EQ(values(flat.all().grad), (std::vector<float>{1, 1, 1, 2, 3, 1, 2, 3, 0, 0, 0}));
  autograd::backward(ops::sum(model.layer.bias));  // a second landing adds
  EXPECT_EQ(values(flat.all().range(0, 2).grad), (std::vector<float>{2, 2}));
}

TEST(FlatParams, ATiedParameterIsThereOnceWithItsOtherNames) {
  Model model;
  EXPECT_EQ(FlatParams(model).slices()[2].aliases, std::vector<std::string>{"head.weight"});
}

TEST(FlatParams, AHandleThatTwoModulesHoldIsOneParameter) {
  struct Pair : layers::Module {
    Pair() {
      b.weight = a.weight;
      add_child("a", a);
      add_child("b", b);
    }
    Layer a, b;
  } pair;
  const FlatParams flat(pair);
  EXPECT_EQ(flat.all().numel(), 6 + 2 + 2);
  ASSERT_EQ(flat.slices().size(), 3u);
  EXPECT_EQ(flat.slices()[2].name, "a.weight");
  EXPECT_EQ(flat.slices()[2].aliases, std::vector<std::string>{"b.weight"});
  EXPECT_TRUE(pair.a.weight.is(pair.b.weight));
  flat.check_bound();
  pair.b.weight = zeros({2, 3});
  EXPECT_THROW(flat.check_bound(), UsageError) << "the second handle counts too";
}

TEST(FlatParams, ARangeKnowsItsSlices) {
  Model model;
  const FlatParams flat(model);
  const FlatView middle = flat.all().range(1, 9);  // cuts the bias and the table
  EXPECT_EQ(values(middle.param), (std::vector<float>{11, 0, 1, 2, 3, 4, 5, 20}));
  EXPECT_EQ(middle.offset, 1);
  EXPECT_EQ(middle.first_slice, 0);
  EXPECT_EQ(middle.slices.size(), 3u);
  EXPECT_TRUE(middle.grad.same_storage(flat.all().grad));
  const FlatView inner = middle.range(1, 7);  // the weight alone, in the middle's coordinates
  EXPECT_EQ(values(inner.param), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(inner.offset, 2);
  EXPECT_EQ(inner.first_slice, 1);
  ASSERT_EQ(inner.slices.size(), 1u);
  EXPECT_EQ(inner.slices[0].name, "layer.weight");
  ASSERT_EQ(inner.params.size(), 1u);
  EXPECT_TRUE(inner.params[0].is(model.layer.weight));
  EXPECT_EQ(middle.range(3, 3).numel(), 0);
  EXPECT_TRUE(middle.range(3, 3).slices.empty());
  EXPECT_THROW(middle.range(0, 9), UsageError);
  EXPECT_THROW(middle.range(3, 2), UsageError);
  EXPECT_THROW(middle.range(-1, 2), UsageError);
}

TEST(KnownFaults, O04_AParameterReplacedAfterWrappingIsRefused) {
  Model model;
  const FlatParams flat(model);
  flat.check_bound();
  model.layer.bias = zeros({2});
  EXPECT_EQ(error_of([&] { flat.check_bound(); }),
            "[optim.flat_params] layer.bias was replaced in its module after its values were laid "
            "out flat; write into it instead, or build FlatParams again");
  model.layer.bias = flat.param(0);
  flat.check_bound();
  autograd::leaf_of(model.layer.bias).grad = zeros({2});
  EXPECT_EQ(error_of([&] { flat.check_bound(); }),
            "[optim.flat_params] the gradient of layer.bias no longer lands in the flat buffer");
}

TEST(KnownFaults, O04_SignaturesTellDifferentParameterListsApart) {
  struct Extra : layers::Module {
    Extra() {
      add_parameter("weight", weight, Decay::yes);
      add_parameter("bias", bias, Decay::no);
      add_parameter("scale", scale, Decay::no);
    }
    Tensor weight = zeros({2, 3}), bias = zeros({2}), scale = zeros({2});
  } extra;
  struct Swapped : layers::Module {
    Swapped() {
      add_parameter("bias", bias, Decay::no);
      add_parameter("weight", weight, Decay::yes);
    }
    Tensor bias = zeros({2}), weight = zeros({2, 3});
  } swapped;
  Layer a, b, other_shape;
  other_shape.weight = zeros({3, 2});
  autograd::require_grad(other_shape.weight);
  const std::string signature = FlatParams(a).signature();
  EXPECT_EQ(signature, "bias f32 [2]\nweight f32 [2, 3]\ngradients f32 added in f32\n");
  EXPECT_EQ(FlatParams(b).signature(), signature);
  EXPECT_NE(FlatParams(other_shape).signature(), signature);
  EXPECT_NE(FlatParams(extra).signature(), signature);
  EXPECT_NE(FlatParams(swapped).signature(), signature);
}

TEST(FlatParams, AStepMakesSavedParametersOutOfDate) {
  Layer layer;
  const FlatParams flat(layer);
  const auto optimizer = make_optimizer("sgd", flat.all(), {});
  const Tensor x = from_values<float>({1, 2, 3}, {1, 3});
  autograd::require_grad(x);
  const Tensor y = ops::sum(ops::linear(x, layer.weight));  // saves the weight
  optimizer->step({});
  EXPECT_THROW(autograd::backward(y), UsageError);
}

TEST(FlatParams, RefusesWhatDoesNotFitOneBuffer) {
  struct Mixed : layers::Module {
    Mixed() {
      add_parameter("a", a, Decay::no);
      add_parameter("b", b, Decay::no);
    }
    Tensor a = zeros({2}), b = zeros({2}, DType::f16);
  } mixed;
  EXPECT_EQ(error_of([&] { FlatParams flat(mixed); }),
            "[optim.flat_params] b; expected f32 on the device of b, got f16 [2]");
  Layer gone;
  gone.bias = Tensor();
  EXPECT_EQ(error_of([&] { FlatParams flat(gone); }), "[optim.flat_params] bias is undefined");
}

TEST(FlatParams, AModuleWithoutParametersIsEmpty) {
  struct Nothing : layers::Module {
  } nothing;
  const FlatParams flat(nothing);
  EXPECT_EQ(flat.all().numel(), 0);
  make_optimizer("adamw", flat.all(), {})->step({});
}

// ---------------------------------------------------------------- precision

using test::floats;

TEST(FlatParams, BuffersHaveTheDtypesOfThePrecision) {
  for (DType params : test::kFloating)
    for (const auto& [grads, accumulate_in] :
         {std::pair{DType::f32, DType::f32}, {DType::f16, DType::f16}, {DType::bf16, DType::f32}}) {
      Model model;
      const Tensor table = from_values<float>({0.1f, -70000.0f, 1 + 0x1p-9f}, {1, 3});
      kernel::copy(model.table, table);
      const FlatParams flat(model, {params, grads, accumulate_in});
      EXPECT_EQ(flat.all().param.dtype(), params);
      EXPECT_EQ(flat.all().grad.dtype(), accumulate_in);
      EXPECT_EQ(model.table.dtype(), params);
      EXPECT_EQ(floats(model.table), floats(test::in_dtype(table, params))) << "rounded once";
      EXPECT_EQ(autograd::leaf_of(model.table).dtype, grads);
      EXPECT_EQ(flat.precision().accumulate_in, accumulate_in);
      flat.check_bound();
      FlatParams again(model, {params, grads, accumulate_in});  // what is narrow already may stay
      EXPECT_EQ(floats(again.all().param), floats(flat.all().param));
    }
}

TEST(FlatParams, GradientsAreRoundedThenAddedInTheBuffer) {
  const auto train = [](const Precision& precision) {
    Layer layer;
    const FlatParams flat(layer, precision);
    for (float x : {1 + 0x1p-9f, 0x1p-9f, 0x1p-9f})
      autograd::backward(ops::sum(ops::linear(full({1, 3}, x), layer.weight, layer.bias)));
    EXPECT_EQ(floats(flat.all().range(0, 2).grad), (std::vector<float>{3, 3})) << "the bias";
    const std::vector<float> weight = floats(flat.all().range(2, 8).grad);
    EXPECT_EQ(weight, std::vector<float>(6, weight[0]));
    return weight[0];
  };
  const auto f32 = DType::f32, bf16 = DType::bf16;
  EXPECT_EQ(train({f32, f32, f32}), 1 + 3 * 0x1p-9f);
  EXPECT_EQ(train({f32, bf16, f32}), 1 + 2 * 0x1p-9f);
  EXPECT_EQ(train({f32, bf16, bf16}), 1.0f);
}

TEST(FlatParams, SignaturesShowBothDtypes) {
  Layer layer;
  EXPECT_EQ(FlatParams(layer, {DType::bf16, DType::f16, DType::f32}).signature(),
            "bias bf16 [2]\nweight bf16 [2, 3]\ngradients f16 added in f32\n");
}

TEST(FlatParams, RefusesPrecisionsThatMakeNoSense) {
  Layer layer;
  const auto error = [&](const Precision& precision) {
    return error_of([&] { FlatParams flat(layer, precision); });
  };
  EXPECT_EQ(error({DType::f32, DType::bf16, DType::f16}),
            "[optim.flat_params] bf16 gradients are added in bf16 or f32; got f16");
  EXPECT_EQ(error({DType::f32, DType::f32, DType::bf16}),
            "[optim.flat_params] f32 gradients are added in f32; got bf16");
  EXPECT_EQ(error({DType::i32, DType::f32, DType::f32}),
            "[optim.flat_params] dtype of parameters; expected f32, f16 or bf16, got i32");
  EXPECT_EQ(error({DType::f32, DType::u8, DType::u8}),
            "[optim.flat_params] dtype of gradients; expected f32, f16 or bf16, got u8");
  FlatParams flat(layer, {DType::bf16, DType::f32, DType::f32});
  EXPECT_EQ(error({DType::f16, DType::f32, DType::f32}),
            "[optim.flat_params] bias; expected f32 or f16 on the device of bias, got bf16 [2]");
}

// A step is seen by the cast that autocast keeps of a weight.
TEST(FlatParams, AStepIsSeenByCachedCasts) {
  Layer layer;
  const FlatParams flat(layer);
  const auto sgd = make_optimizer("sgd", flat.all(), {.lr = 1});
  const Tensor x = full({1, 3}, 1);
  for (int step = 0; step < 3; ++step) {
    const autograd::Autocast autocast(DType::bf16);
    EXPECT_EQ(floats(ops::linear(x, layer.weight)),
              (std::vector<float>{3 - 3.0f * step, 12 - 3.0f * step}));
    kernel::fill(flat.all().grad, 1);
    sgd->step({});
  }
}

}  // namespace
}  // namespace lockstep::optim

// What operations give and what their gradients are, for every row of the table in
// autograd/README.md under every Autocast.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "test_paths.h"
#include "tests/support/precision.h"
#include "tests/support/tensors.h"

namespace lockstep::autograd {
namespace {

using test::in_dtype;
using testing::near;
using testing::randn;
using Inputs = std::vector<Tensor>;

struct Operation {
  std::vector<Shape> shapes;  // of the floating inputs, in order
  size_t operands;            // as many of them count for C and for promote
  std::function<Tensor(const Inputs&)> f;
};

// Every operation on inputs away from its singular points.
const std::map<std::string, Operation>& operations() {
  const Tensor ids = from_values<int64_t>({1, 4, 1}), targets = from_values<int64_t>({2, 0, 3});
  static const std::map<std::string, Operation> all{
      {"linear",
       {{{3, 4}, {5, 4}, {5}}, 2, [](const Inputs& x) { return ops::linear(x[0], x[1], x[2]); }}},
      {"linear_relu",
       {{{3, 4}, {5, 4}, {5}},
        2,
        [](const Inputs& x) { return ops::linear_relu(x[0], x[1], x[2]); }}},
      {"matmul", {{{3, 4}, {4, 5}}, 2, [](const Inputs& x) { return ops::matmul(x[0], x[1]); }}},
      {"conv2d",
       {{{2, 2, 4, 3}, {3, 2, 3, 2}, {3}},
        2,
        [](const Inputs& x) { return ops::conv2d(x[0], x[1], x[2]); }}},
      {"max_pool",
       {{{2, 2, 4, 4}}, 1, [](const Inputs& x) { return ops::max_pool(x[0], kernel::tiles(2)); }}},
      {"average_pool",
       {{{2, 2, 4, 4}},
        1,
        [](const Inputs& x) { return ops::average_pool(x[0], kernel::tiles(2)); }}},
      {"global_average_pool",
       {{{2, 2, 4, 4}}, 1, [](const Inputs& x) { return ops::global_average_pool(x[0]); }}},
      {"flatten", {{{3, 2, 2}}, 1, [](const Inputs& x) { return ops::flatten(x[0]); }}},
      {"attention",
       {{{2, 5, 24}}, 1, [](const Inputs& x) { return ops::attention(x[0], {.heads = 2}); }}},
      {"layer_norm",
       {{{3, 8}, {8}, {8}}, 2, [](const Inputs& x) { return ops::layer_norm(x[0], x[1], x[2]); }}},
      {"residual_layer_norm.out",
       {{{3, 8}, {3, 8}, {8}, {8}},
        3,
        [](const Inputs& x) { return ops::residual_layer_norm(x[0], x[1], x[2], x[3]).out; }}},
      {"residual_layer_norm.sum",
       {{{3, 8}, {3, 8}},
        2,
        [](const Inputs& x) {
          return ops::residual_layer_norm(x[0], x[1], full({8}, 1, x[0].dtype()), {}).sum;
        }}},
      {"batch_norm",
       {{{4, 3, 5}, {3}, {3}},
        2,
        [](const Inputs& x) { return ops::batch_norm(x[0], x[1], x[2]); }}},
      {"batch_norm_relu",
       {{{4, 3, 5}, {3}, {3}},
        2,
        [](const Inputs& x) {
          return ops::batch_norm_relu(x[0], x[1], x[2], ops::batch_moments(x[0]), 1e-5f);
        }}},
      {"batch_norm_relu.addend",
       {{{4, 3, 5}, {3}, {3}, {4, 3, 5}},
        2,
        [](const Inputs& x) {
          return ops::batch_norm_relu(x[0], x[1], x[2], ops::batch_moments(x[0]), 1e-5f, x[3]);
        }}},
      {"fixed_batch_norm",
       {{{4, 3, 5}, {3}, {3}},
        2,
        [](const Inputs& x) {
          return ops::fixed_batch_norm(x[0], x[1], x[2], full({3}, 0.5), full({3}, 2));
        }}},
      {"fixed_batch_norm_relu",
       {{{4, 3, 5}, {3}, {3}},
        2,
        [](const Inputs& x) {
          return ops::fixed_batch_norm_relu(x[0], x[1], x[2], full({3}, 0.5), full({3}, 2));
        }}},
      {"group_norm",
       {{{4, 6, 5}, {6}, {6}},
        2,
        [](const Inputs& x) { return ops::group_norm(x[0], x[1], x[2], 2); }}},
      {"add", {{{3, 4}, {4}}, 2, [](const Inputs& x) { return ops::add(x[0], x[1]); }}},
      {"subtract", {{{3, 4}, {4}}, 2, [](const Inputs& x) { return ops::subtract(x[0], x[1]); }}},
      {"multiply",
       {{{3, 4}, {3, 1}}, 2, [](const Inputs& x) { return ops::multiply(x[0], x[1]); }}},
      {"divide",
       {{{3, 4}, {3, 4}},
        2,
        [](const Inputs& x) { return ops::divide(x[0], ops::unary(x[1], kernel::Unary::exp)); }}},
      {"scale", {{{3, 4}}, 1, [](const Inputs& x) { return ops::scale(x[0], 0.3f); }}},
      {"unary",
       {{{3, 4}}, 1, [](const Inputs& x) { return ops::unary(x[0], kernel::Unary::tanh); }}},
      {"gelu", {{{3, 4}}, 1, [](const Inputs& x) { return ops::gelu(x[0]); }}},
      {"bias_gelu", {{{3, 4}, {4}}, 1, [](const Inputs& x) { return ops::bias_gelu(x[0], x[1]); }}},
      {"dropout",
       {{{3, 4}},
        1,
        [](const Inputs& x) {
          return ops::dropout(x[0], 0.5f, {1, 2, 3});
        }}},
      {"reshape",
       {{{3, 4}},
        1,
        [](const Inputs& x) {
          return ops::reshape(x[0], {2, 6});
        }}},
      {"slice", {{{3, 4}}, 1, [](const Inputs& x) { return ops::slice(x[0], 1, 2); }}},
      {"embedding", {{{5, 4}}, 1, [ids](const Inputs& x) { return ops::embedding(x[0], ids); }}},
      {"embedding_bag",
       {{{3, 4}},
        1,
        [](const Inputs& x) {
          const std::vector<int64_t> rows{2, 3};
          return ops::embedding_bag(full({5, 4}, 0.25), std::make_shared<TableGradient>(rows, 4),
                                    {from_values<int32_t>({0, 1, 1, 2, 0, 0})}, x[0]);
        }}},
      {"dot_interaction",
       {{{2, 3, 4}}, 1, [](const Inputs& x) { return ops::dot_interaction(x[0]); }}},
      {"softmax", {{{3, 4}}, 1, [](const Inputs& x) { return ops::softmax(x[0]); }}},
      {"softmax_cross_entropy_sum",
       {{{3, 4}},
        1,
        [targets](const Inputs& x) { return ops::softmax_cross_entropy_sum(x[0], targets); }}},
      {"bce_with_logits_sum",
       {{{3, 4}},
        1,
        [](const Inputs& x) {
          return ops::bce_with_logits_sum(x[0], full({3, 4}, 0.25));
        }}},
      {"sum", {{{3, 4}}, 1, [](const Inputs& x) { return ops::sum(x[0]); }}},
      {"mean", {{{3, 4}}, 1, [](const Inputs& x) { return ops::mean(x[0]); }}},
  };
  return all;
}

// The README's table: operation and what it gives.
std::map<std::string, std::string> table() {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/autograd/README.md");
  std::map<std::string, std::string> rows;
  const std::regex name("`([a-z_.0-9]+)`");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| operation |", 0) == 0)
      inside = true;
    else if (line.rfind('|', 0) != 0)
      inside = false;
    if (!inside || line.rfind("| `", 0) != 0) continue;
    const size_t end = line.rfind(" |"), begin = line.rfind("| ", end - 1) + 2;
    const std::string operations = line.substr(0, line.find(" | "));
    for (std::sregex_iterator it(operations.begin(), operations.end(), name), last; it != last;
         ++it)
      rows[(*it)[1]] = line.substr(begin, end - begin);
  }
  return rows;
}

DType promoted(const Inputs& x, size_t count) {
  DType dtype = x[0].dtype();
  for (size_t i = 1; i < count; ++i) dtype = promote(dtype, x[i].dtype());
  return dtype;
}

std::optional<DType> given(const std::string& rule, const Operation& operation, const Inputs& x,
                           std::optional<DType> compute) {
  if (rule == "f32") return DType::f32;
  if (rule == "x") return x[0].dtype();
  if (rule == "promote") return promoted(x, operation.operands);
  if (rule == "C") return compute.value_or(promoted(x, operation.operands));
  return std::nullopt;
}

double rounding_of(DType t) { return t == DType::bf16 ? 0x1p-8 : t == DType::f16 ? 0x1p-11 : 1e-6; }

struct Passes {
  Tensor y;
  std::vector<Tensor> gradients;
};

// Runs f on leaves with these values behind an operation each, so that their gradients pass through
// results, or on the leaves themselves.
enum class Behind { operation, leaf };
Passes run(const Operation& operation, const Inputs& x, std::optional<DType> compute, Behind behind,
           std::optional<DType> gradient = {}) {
  Passes result;
  Inputs leaves, inputs;
  for (const Tensor& value : x) {
    leaves.push_back(in_dtype(value, value.dtype()));
    Leaf& leaf = require_grad(leaves.back());
    if (gradient) leaf.dtype = *gradient;
    inputs.push_back(behind == Behind::leaf ? leaves.back() : ops::scale(leaves.back(), 1));
  }
  {
    std::optional<Autocast> autocast;
    if (compute) autocast.emplace(*compute);
    result.y = operation.f(inputs);
  }
  backward(result.y, in_dtype(randn(result.y.shape(), 50), result.y.dtype()));
  for (const Tensor& leaf : leaves) result.gradients.push_back(grad(leaf));
  return result;
}

TEST(Dtypes, TheTableHasEveryOperation) {
  std::set<std::string> named, tested, declared;
  for (const auto& [name, rule] : table()) named.insert(name);
  for (const auto& [name, operation] : operations()) tested.insert(name);
  EXPECT_EQ(named, tested);
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/autograd/ops.h");
  const std::regex function("^(?:Tensor|ResidualNorm) ([a-z_0-9]+)\\(.*");
  std::smatch match;
  for (std::string line; std::getline(file, line);)
    if (std::regex_match(line, match, function)) declared.insert(match[1]);
  std::set<std::string> plain;
  for (const std::string& name : named) plain.insert(name.substr(0, name.find('.')));
  EXPECT_EQ(plain, declared);
}

TEST(Dtypes, EveryRowHolds) {
  const auto rules = table();
  const std::optional<DType> computes[] = {std::nullopt, DType::f32, DType::f16, DType::bf16};
  using Pair = std::pair<DType, DType>;  // of the first input and of the others
  const Pair mixes[] = {{DType::f32, DType::f32},
                        {DType::f16, DType::f16},
                        {DType::bf16, DType::bf16},
                        {DType::bf16, DType::f32},
                        {DType::f32, DType::f16}};
  for (const auto& [name, rule] : rules)
    for (const auto& compute : computes)
      for (const auto& [first, others] : mixes) {
        const Operation& operation = operations().at(name);
        SCOPED_TRACE(fmt::format("{} of {} and {} under {}", name, name_of(first), name_of(others),
                                 compute ? name_of(*compute) : "no autocast"));
        Inputs x, wide;
        for (size_t i = 0; i < operation.shapes.size(); ++i) {
          x.push_back(in_dtype(randn(operation.shapes[i], i + 1), i == 0 ? first : others));
          wide.push_back(in_dtype(x.back(), DType::f32));
        }
        const auto expected = given(rule, operation, x, compute);
        ASSERT_TRUE(expected) << "unknown rule " << rule;
        double rounding = std::max(rounding_of(first), rounding_of(others));
        if (compute) rounding = std::max(rounding, rounding_of(*compute));
        const Passes exact = run(operation, wide, {}, Behind::leaf);
        for (Behind behind : {Behind::operation, Behind::leaf}) {
          const Passes got = run(operation, x, compute, behind);
          EXPECT_EQ(name_of(got.y.dtype()), name_of(*expected));
          EXPECT_TRUE(near(in_dtype(got.y, DType::f32), exact.y, 6 * rounding));
          for (size_t i = 0; i < x.size(); ++i) {
            EXPECT_EQ(name_of(got.gradients[i].dtype()), name_of(x[i].dtype())) << "gradient " << i;
            EXPECT_TRUE(
                near(in_dtype(got.gradients[i], DType::f32), exact.gradients[i], 8 * rounding, 0.1))
                << "gradient " << i;
          }
        }
        for (DType knob : {DType::f32, DType::bf16})
          for (const Tensor& gradient : run(operation, x, compute, Behind::leaf, knob).gradients)
            EXPECT_EQ(name_of(gradient.dtype()), name_of(knob)) << "the leaf's own";
      }
}

}  // namespace
}  // namespace lockstep::autograd

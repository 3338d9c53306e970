// The fold that collectives make: successive additions in rank order, for every dtype.
#include "distributed/comm/fold.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "core/random.h"

namespace lockstep::distributed {
namespace {

// `count` tensors of n random values of a dtype, over many magnitudes.
std::vector<Tensor> random_inputs(int count, int64_t n, DType dtype) {
  std::vector<Tensor> inputs;
  for (int k = 0; k < count; ++k) {
    const Random random(3, RandomStream::tests, static_cast<uint32_t>(k));
    std::vector<float> x(static_cast<size_t>(n));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(random.normal(i)) * static_cast<float>(1 << (i % 14));
    inputs.push_back(Tensor::empty({n}, dtype));
    kernel::cast(inputs.back(), from_values(x));
  }
  return inputs;
}

class Fold : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Fold,
                         testing::Values(DType::f32, DType::f16, DType::bf16, DType::i32,
                                         DType::i64),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST_P(Fold, EqualsTheKernelBitForBit) {
  for (int count : {1, 2, 3, 7}) {
    const auto inputs = random_inputs(count, 2500, GetParam());
    std::vector<const void*> ins;
    for (const Tensor& x : inputs) ins.push_back(x.bytes_data());
    const Tensor expected = empty_like(inputs[0]);
    kernel::fold(expected, {ins.data(), count});
    const Tensor got = empty_like(expected), second = empty_like(expected);
    const std::vector<void*> outs = {got.mutable_bytes_data(), second.mutable_bytes_data()};
    fold(outs, ins, GetParam(), 2500, {});
    EXPECT_EQ(std::memcmp(got.bytes_data(), expected.bytes_data(), got.bytes()), 0) << count;
    EXPECT_EQ(std::memcmp(second.bytes_data(), expected.bytes_data(), got.bytes()), 0) << count;
  }
}

TEST_P(Fold, MayWriteToItsInputs) {
  for (int count : {2, 3}) {
    const auto inputs = random_inputs(count, 2500, GetParam());
    std::vector<const void*> ins;
    std::vector<void*> outs;
    for (const Tensor& x : inputs) ins.push_back(x.bytes_data());
    const Tensor expected = empty_like(inputs[0]);
    kernel::fold(expected, {ins.data(), count});
    for (const Tensor& x : inputs) outs.push_back(x.mutable_bytes_data());
    fold(outs, ins, GetParam(), 2500, {});
    for (const Tensor& x : inputs)
      EXPECT_EQ(std::memcmp(x.bytes_data(), expected.bytes_data(), x.bytes()), 0) << count;
  }
}

}  // namespace
}  // namespace lockstep::distributed

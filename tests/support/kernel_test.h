#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "core/kernels/cpu/isa.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/tensor.h"
#include "tests/support/error_of.h"

/// Kernels are tested on every instruction set of the machine with one and with two threads:
///
///     class Softmax : public KernelTest {};
///     LOCKSTEP_KERNEL_TESTS(Softmax);
///     TEST_P(Softmax, …) { … }
namespace lockstep::test {

class KernelTest : public testing::TestWithParam<std::tuple<cpu::Isa, int>> {
 public:
  KernelTest() : before_(cpu::isa()), budget_(std::get<1>(GetParam())) {
    cpu::use_isa(std::get<0>(GetParam()));
  }
  ~KernelTest() override { cpu::use_isa(before_); }

 private:
  cpu::Isa before_;
  ThreadBudget budget_;
};

inline std::string kernel_test_name(const testing::TestParamInfo<std::tuple<cpu::Isa, int>>& info) {
  return std::string(cpu::name_of(std::get<0>(info.param))) + "_" +
         std::to_string(std::get<1>(info.param)) + "_threads";
}

#define LOCKSTEP_KERNEL_TESTS(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Kernels, Suite,                                                        \
                           testing::Combine(testing::ValuesIn(::lockstep::cpu::available_isas()), \
                                            testing::Values(1, 2)),                               \
                           ::lockstep::test::kernel_test_name)

/// Sizes around vectors, blocks and pieces.
inline const std::vector<int64_t>& odd_sizes() {
  static const std::vector<int64_t> sizes = {0,  1,  3,  4,  7,   8,    15,   16,
                                             17, 31, 33, 64, 100, 1023, 70001};
  return sizes;
}

enum class Placed { aligned, unaligned };

/// Normal numbers; `key` tells tensors of a test apart. Unaligned ones begin 4 bytes into a block.
inline Tensor random_tensor(const Shape& shape, uint32_t key, double sd = 1,
                            Placed placed = Placed::aligned) {
  Tensor x = placed == Placed::aligned ? Tensor::empty(shape)
                                       : Tensor::empty({shape.numel() + 1}).slice_as_root(1, shape);
  const Random random(2024, RandomStream::tests, key);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    p[i] = static_cast<float>(sd * random.normal(static_cast<uint64_t>(i)));
  return x;
}

/// As doubles, for the naive twins.
inline std::vector<double> doubles(const Tensor& x) {
  const std::vector<float> v = values(x);
  return {v.begin(), v.end()};
}

/// |got - expected| <= relative · |expected| + absolute everywhere; NaN never passes.
inline void expect_close(const Tensor& got, const std::vector<double>& expected, double relative,
                         double absolute, const std::string& what = "") {
  const std::vector<float> v = values(got);
  ASSERT_EQ(v.size(), expected.size()) << what;
  for (size_t i = 0; i < v.size(); ++i) {
    const double error = std::abs(v[i] - expected[i]);
    ASSERT_TRUE(error <= relative * std::abs(expected[i]) + absolute)
        << what << " element " << i << " of " << v.size() << ": expected " << expected[i]
        << ", got " << v[i];
  }
}

}  // namespace lockstep::test

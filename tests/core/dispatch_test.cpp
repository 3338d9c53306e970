#include "core/dispatch.h"

#include <gtest/gtest.h>

#include "core/kernels/attention.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/codec.h"
#include "core/kernels/convolution.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/embedding_bag.h"
#include "core/kernels/interaction.h"
#include "core/kernels/magnitudes.h"
#include "core/kernels/matmul.h"
#include "core/kernels/norm.h"
#include "core/kernels/optim_step.h"
#include "core/kernels/pooling.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"
#include "core/kernels/table_step.h"
#include "core/kernels/topk.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

TEST(Dispatch, AMissingKernelThrowsByName) {
  Kernel<void(const Tensor&, const Tensor&)> gelu{"gelu"};
  const Tensor x = zeros({2});
  EXPECT_EQ(error_of<UsageError>([&] { gelu(x, x); }), "[kernel.gelu] no cpu kernel");
  const Provide provided{gelu, DeviceType::cuda, [](const Tensor&, const Tensor&) {}};
  EXPECT_EQ(error_of<UsageError>([&] { gelu(x, x); }), "[kernel.gelu] no cpu kernel");
}

TEST(Dispatch, ThisBuildHasNoOtherMemory) {
  EXPECT_EQ(error_of<UsageError>([] {
              Tensor::empty({2}, DType::f32, {DeviceType::cuda, 0});
            }),
            "[core.storage] this build has no cuda memory");
}

// A kernel that nothing provides would throw "no cpu kernel"; all of these complain of something
// else.
TEST(Dispatch, EveryKernelHasACpuImplementation) {
  const Tensor x = zeros({0});
  const auto provided = [&](const auto& kernel, const auto&... arguments) {
    try {
      kernel(x, arguments...);
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).find("no cpu kernel"), std::string::npos) << kernel.name();
    }
  };
  provided(kernel::fill, 0.0);
  provided(kernel::copy, x);
  provided(kernel::cast, x);
  provided(kernel::binary, x, x, kernel::Binary::add);
  provided(kernel::sum_to, x);
  provided(kernel::unary, x, kernel::Unary::exp);
  provided(kernel::unary_backward, x, x, x, kernel::Unary::exp);
  provided(kernel::scale, x, 1.0f);
  provided(kernel::add_scaled, x, 1.0f);
  provided(kernel::gelu, x, kernel::Gelu::exact);
  provided(kernel::gelu_backward, x, x, kernel::Gelu::exact);
  provided(kernel::bias_gelu, x, x, kernel::Gelu::exact);
  provided(kernel::bias_gelu_backward, x, x, x, x, kernel::Gelu::exact);
  provided(kernel::bias_relu_backward, x, x, x);
  provided(kernel::uniform, 0.5, kernel::UniformKey{});
  provided(kernel::dropout, x, 0.5f, kernel::DropoutKey{});
  provided(kernel::matmul, x, x, kernel::MatmulOptions{});
  provided(kernel::matmul_strided, kernel::MatrixIn{x}, kernel::MatrixIn{x}, kernel::MatrixIn{x},
           kernel::MatmulOptions{});
  provided(kernel::layer_norm, x, x, x, x, x, 1e-5f);
  provided(kernel::residual_layer_norm, x, x, x, x, x, x, x, 1e-5f);
  provided(kernel::layer_norm_backward, x, x, x, x, x, x, x, x);
  provided(kernel::channel_moments, x);
  provided(kernel::merge_moments, x, std::span<const int64_t>());
  provided(kernel::batch_statistics, x, int64_t{1}, 1e-5f);
  provided(kernel::fixed_statistics, x, x, 1e-5f);
  provided(kernel::update_running, x, x, int64_t{2}, 0.1);
  provided(kernel::batch_norm, x, x, x, x);
  provided(kernel::batch_norm_backward_sums, x, x, x);
  provided(kernel::batch_norm_backward, x, x, x, x, x, int64_t{1});
  provided(kernel::batch_norm_relu, x, x, x, x, x);
  provided(kernel::batch_norm_relu_backward_sums, x, x, x, x, x);
  provided(kernel::batch_norm_relu_backward, x, x, x, x, x, x, int64_t{1});
  provided(kernel::batch_norm_add_relu_backward_sums, x, x, x, x, x);
  provided(kernel::softmax, x);
  provided(kernel::softmax_backward, x, x);
  provided(kernel::softmax_cross_entropy, x, x, x, int64_t{-1});
  provided(kernel::softmax_cross_entropy_backward, x, x, x, x, int64_t{-1});
  provided(kernel::bce_with_logits, x, x);
  provided(kernel::bce_with_logits_backward, x, x, x);
  provided(kernel::attention, x, x, kernel::AttentionOptions{});
  provided(kernel::attention_backward, x, x, x, x, kernel::AttentionOptions{});
  provided(kernel::conv2d, x, x, x, kernel::Convolution{});
  provided(kernel::conv2d_backward_input, x, x, kernel::Convolution{});
  provided(kernel::conv2d_backward_weight, x, x, x, kernel::Convolution{});
  provided(kernel::max_pool, x, x, kernel::Pooling{});
  provided(kernel::max_pool_backward, x, x, kernel::Pooling{});
  provided(kernel::average_pool, x, kernel::Pooling{}, kernel::Divisor::image);
  provided(kernel::average_pool_backward, x, kernel::Pooling{}, kernel::Divisor::image);
  provided(kernel::embedding, x, x);
  provided(kernel::embedding_backward, x, x, int64_t{-1});
  provided(kernel::embedding_bag, x, kernel::Bags{x}, kernel::TableLayout{});
  provided(kernel::coalesce_bags, x, std::span<const kernel::BagGradient>(), kernel::TableLayout{});
  provided(kernel::put_first, x);
  provided(kernel::take_first, x);
  provided(kernel::dot_interaction, x);
  provided(kernel::dot_interaction_backward, x, x);
  provided(kernel::table_sgd, kernel::RowGradients{x, x}, kernel::RowStep{1, 1});
  provided(kernel::table_adagrad, x, kernel::RowGradients{x, x}, kernel::RowStep{1, 1});
  provided(kernel::table_rowwise_adagrad, x, kernel::RowGradients{x, x}, kernel::RowStep{1, 1});
  provided(kernel::table_adam, x, x, kernel::RowGradients{x, x}, kernel::RowStep{1, 1});
  provided(kernel::sum, x);
  provided(kernel::column_sum, x);
  provided(kernel::sum_of_squares);
  provided(kernel::first_non_finite);
  provided(kernel::argmax, x);
  provided(kernel::encode_fp8, x, kernel::Fp8Encoding{});
  provided(kernel::decode_fp8, x, kernel::Fp8::e4m3, 1.0f);
  provided(kernel::count_magnitudes, x);
  provided(kernel::top_k, x, x);
  provided(kernel::select_above, x, x, 1.0f);
  provided(kernel::sample_threshold, int64_t{1}, int64_t{1});
  provided(kernel::sgd_step, x, x, kernel::SgdStep{});
  provided(kernel::adam_step, x, x, x, kernel::AdamStep{});
}

TEST(Dispatch, ChecksSayWhatWasExpectedAndGot) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of<UsageError>([&] { expect_shape("gelu", "bias", x, {3}); }),
            "[kernel.gelu] shape of bias; expected [3], got [2, 3]");
  EXPECT_EQ(error_of<UsageError>([&] { expect_dtype("gelu", "x", x, DType::bf16); }),
            "[kernel.gelu] dtype of x; expected bf16, got f32");
}

}  // namespace
}  // namespace lockstep::test

#pragma once
#include "autograd/moment_exchange.h"
#include "autograd/table_gradient.h"
#include "core/kernels/attention.h"
#include "core/kernels/convolution.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/pooling.h"

#include <memory>

/// Operations that record. Each is one struct beside its function in autograd/ops; shapes and
/// errors are those of the kernel of the same name.
namespace lockstep::ops {

// pointwise.cpp; a and b broadcast
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, float factor);
Tensor unary(const Tensor& x, kernel::Unary f);
Tensor gelu(const Tensor& x, kernel::Gelu kind = kernel::Gelu::exact);
/// gelu(x + bias), bias [C]
Tensor bias_gelu(const Tensor& x, const Tensor& bias, kernel::Gelu kind = kernel::Gelu::exact);
/// Inverted dropout; the identity when p = 0.
Tensor dropout(const Tensor& x, float p, kernel::DropoutKey key);

// shape.cpp
Tensor reshape(const Tensor& x, const Shape& shape);
/// [N, …] as [N, product of the rest]
Tensor flatten(const Tensor& x);
/// Rows [begin, end) of the leading dimension.
Tensor slice(const Tensor& x, int64_t begin, int64_t end);

// reduce.cpp; results are scalars (rank 0)
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);

// matmul.cpp
/// a[M, K] · b[K, N], either stored transposed.
struct Transposed {
  bool a = false, b = false;
};
Tensor matmul(const Tensor& a, const Tensor& b, Transposed transposed = {});
/// x[..., in] · weight[out, in]ᵀ + bias[out]; bias may be undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// relu(linear(x, weight, bias)) in one pass, and one back.
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// convolution.cpp
/// x [N, C, rows, columns] and weight [K, C / groups, rows, columns] give [N, K, …]; bias [K] may
/// be undefined.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const kernel::Convolution& options = {});

// pooling.cpp; x [N, C, rows, columns]
/// The gradient goes to the first of the largest elements of a window.
Tensor max_pool(const Tensor& x, const kernel::Pooling& options);
Tensor average_pool(const Tensor& x, const kernel::Pooling& options,
                    kernel::Divisor divisor = kernel::Divisor::image);
/// The mean of each plane: [N, C].
Tensor global_average_pool(const Tensor& x);

// norm.cpp
/// beta may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps = 1e-5f);
struct ResidualNorm {
  Tensor sum, out;
};
/// sum = x + residual; out = layer_norm(sum)
ResidualNorm residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                                 const Tensor& beta, float eps = 1e-5f);

// batch_norm.cpp; x [N, C, ...]; gamma, beta [C], each may be undefined
/// The moments of a batch (core/kernels/batch_norm.h) and how many values a channel has in it: of
/// x, or with an exchange of all who normalise together. Not recorded.
struct BatchMoments {
  Tensor moments;
  int64_t count = 0;
};
BatchMoments batch_moments(const Tensor& x, autograd::MomentExchange* exchange = nullptr);
/// Normalises by the batch's biased variance. `batch` must be x's moments, joined by `exchange`
/// where there is one: the gradient goes through them.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  const BatchMoments& batch, float eps,
                  std::shared_ptr<autograd::MomentExchange> exchange = nullptr);
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps = 1e-5f);
/// relu(batch_norm(…) + addend) in one pass, and one pass less back; addend, of x's shape, may be
/// undefined.
Tensor batch_norm_relu(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       const BatchMoments& batch, float eps, const Tensor& addend = {},
                       std::shared_ptr<autograd::MomentExchange> exchange = nullptr);
/// Normalises by a given mean and variance [C], which are constants.
Tensor fixed_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        const Tensor& mean, const Tensor& variance, float eps = 1e-5f);
Tensor fixed_batch_norm_relu(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                             const Tensor& mean, const Tensor& variance, float eps = 1e-5f,
                             const Tensor& addend = {});
/// Normalises the C / groups channels of a group of each sample together (Wu & He 2018,
/// arXiv:1803.08494).
Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, int64_t groups,
                  float eps = 1e-5f);

// loss.cpp
inline constexpr int64_t kIgnoreIndex = -100;
Tensor softmax(const Tensor& x);
/// Σ over rows (a scalar); targets i32 or i64 [N]. Divide by the count of targets yourself, once.
Tensor softmax_cross_entropy_sum(const Tensor& logits, const Tensor& targets,
                                 int64_t ignore = kIgnoreIndex);
/// Σ over elements
Tensor bce_with_logits_sum(const Tensor& logits, const Tensor& targets);

// embedding.cpp
/// table[rows, C] at ids [...] gives [..., C]. Rows equal to `padding` get no gradient.
Tensor embedding(const Tensor& table, const Tensor& ids, int64_t padding = -1);

// embedding_bag.cpp
/// What B samples look up in the T tables of `gradient`, f32: [B, T, D]. With `first` [B, D] that
/// is [B, 1 + T, D], and `first` the first row of a sample. Where the tables are a leaf
/// (require_grad) their gradient goes to `gradient`, by rows; nothing as large as a table is made,
/// and nothing lands at the leaf.
Tensor embedding_bag(const Tensor& tables, const std::shared_ptr<autograd::TableGradient>& gradient,
                     const kernel::Bags& bags, const Tensor& first = {});

// interaction.cpp
/// x [B, N, D] gives [B, D + N·(N-1)/2]: x[:, 0, :], then the products of all pairs.
Tensor dot_interaction(const Tensor& x);

// attention.cpp
/// qkv [B, T, 3C] gives [B, T, C]
Tensor attention(const Tensor& qkv, const kernel::AttentionOptions& options);

}  // namespace lockstep::ops

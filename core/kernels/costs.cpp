// What kernels cost where "the bytes of all tensors, once each" would not say it: products by their
// operations, lookups by the rows they touch, updates in place by what they read and write. Asked
// before the kernel has checked its arguments.
#include "core/dispatch.h"
#include "core/kernels/attention.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/matmul.h"
#include "core/kernels/optim_step.h"

namespace lockstep::kernel {
namespace {

double bytes(const Tensor& x) { return x.defined() ? static_cast<double>(x.bytes()) : 0; }
double numel(const Tensor& x) { return static_cast<double>(x.numel()); }

// Two products of T × T × C/heads a head forward, twice as much backward, of which causal
// attention needs half; lengths are not looked at, nor is what is computed again.
double attention_flops(const Tensor& qkv, const AttentionOptions& options) {
  const auto time = static_cast<double>(qkv.rank() == 3 ? qkv.size(1) : 0);
  const double all = 4 * numel(qkv) / 3 * time;
  return options.causal ? all / 2 : all;
}

const CountCost counted[] = {
    {matmul,
     [](const Tensor& out, const Tensor& a, const Tensor&, const MatmulOptions&) -> Cost {
       return {.flops = 2 * numel(a) * static_cast<double>(out.shape().last())};
     }},
    {matmul_strided,
     [](const Tensor&, const MatrixIn& out, const MatrixIn& a, const MatrixIn&,
        const MatmulOptions&) -> Cost {
       return {.flops = 2.0 * static_cast<double>(a.rows) * static_cast<double>(a.cols) *
                        static_cast<double>(out.cols)};
     }},
    {attention,
     [](const Tensor&, const Tensor&, const Tensor& qkv, const AttentionOptions& options) -> Cost {
       return {.flops = attention_flops(qkv, options)};
     }},
    {attention_backward,
     [](const Tensor&, const Tensor&, const Tensor& qkv, const Tensor&, const Tensor&,
        const AttentionOptions& options) -> Cost {
       return {.flops = 2 * attention_flops(qkv, options)};
     }},
    {embedding,
     [](const Tensor& out, const Tensor&, const Tensor& ids) -> Cost {
       return {.bytes = 2 * bytes(out) + bytes(ids)};
     }},
    {embedding_backward,
     [](const Tensor&, const Tensor& dy, const Tensor& ids, int64_t) -> Cost {
       return {.bytes = 3 * bytes(dy) + bytes(ids)};
     }},
    {add_scaled,
     [](const Tensor& out, const Tensor& x, float) -> Cost {
       return {.bytes = 2 * bytes(out) + bytes(x)};
     }},
    {sgd_step,
     [](const Tensor& param, const Tensor& velocity, const Tensor& grad, const SgdStep& o) -> Cost {
       return {.bytes = 2 * bytes(param) + 2 * bytes(velocity) + bytes(grad) + bytes(o.copy)};
     }},
    {adam_step,
     [](const Tensor& param, const Tensor& m, const Tensor& v, const Tensor& grad,
        const AdamStep& o) -> Cost {
       return {.bytes =
                   2 * bytes(param) + 2 * bytes(m) + 2 * bytes(v) + bytes(grad) + bytes(o.copy)};
     }},
};

}  // namespace
}  // namespace lockstep::kernel

// What kernels cost where "the bytes of all tensors, once each" would not say it: products by their
// operations, lookups by the rows they touch, updates in place by what they read and write. Asked
// before the kernel has checked its arguments.
#include "core/dispatch.h"
#include "core/kernels/attention.h"
#include "core/kernels/convolution.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/embedding_bag.h"
#include "core/kernels/interaction.h"
#include "core/kernels/matmul.h"
#include "core/kernels/optim_step.h"
#include "core/kernels/table_step.h"
#include "core/kernels/topk.h"

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

double bytes(const Bags& bags) {
  return bytes(bags.rows) + bytes(bags.offsets) + bytes(bags.weights);
}

// What the bags of a step read: a row of dy for each index, and what says which.
double bytes(std::span<const BagGradient> bags) {
  double sum = 0;
  for (const BagGradient& one : bags)
    sum += bytes(one.bags) + 4 * numel(one.bags.rows) * static_cast<double>(one.dy.shape().last());
  return sum;
}

// A step reads the gradients, and reads and writes the table and `states` values for each of its
// elements; bags are counted as if each of their indices were a row of its own.
Cost step_cost(const RowGradients& g, double states) {
  const double values = g.rows.defined() ? bytes(g.values) : bytes(g.bags);
  return {.bytes = values * (3 + 2 * states)};
}

// Two operations for each element of each pair.
double interaction_flops(const Tensor& x) {
  return x.rank() == 3 ? numel(x) * static_cast<double>(x.size(1) - 1) : 0;
}

// Two operations for each place of the result, channel of its group and element of the window.
Cost convolution_cost(const Tensor& y, const Tensor& weight) {
  return {.flops = weight.rank() == 4 && weight.size(0) > 0
                       ? 2 * numel(y) * numel(weight) / static_cast<double>(weight.size(0))
                       : 0};
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
    {conv2d,
     [](const Tensor& y, const Tensor&, const Tensor& weight, const Tensor&,
        const Convolution&) -> Cost { return convolution_cost(y, weight); }},
    {conv2d_backward_input,
     [](const Tensor&, const Tensor& dy, const Tensor& weight, const Convolution&) -> Cost {
       return convolution_cost(dy, weight);
     }},
    {conv2d_backward_weight,
     [](const Tensor& dweight, const Tensor&, const Tensor& dy, const Tensor&,
        const Convolution&) -> Cost { return convolution_cost(dy, dweight); }},
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
    {embedding_bag,
     [](const Tensor& out, const Tensor&, const Bags& bags, const TableLayout&) -> Cost {
       const auto width = static_cast<double>(out.shape().last());
       return {.bytes = bytes(out) + bytes(bags) + 4 * numel(bags.rows) * width};
     }},
    {coalesce_bags,
     [](const Tensor&, const Tensor&, std::span<const BagGradient> bags,
        const TableLayout&) -> Cost { return {.bytes = 2 * bytes(bags)}; }},
    {put_first,
     [](const Tensor&, const Tensor& rows) -> Cost { return {.bytes = 2 * bytes(rows)}; }},
    {take_first,
     [](const Tensor& rows, const Tensor&) -> Cost { return {.bytes = 2 * bytes(rows)}; }},
    {table_sgd,
     [](const Tensor&, const RowGradients& g, const RowStep&) -> Cost { return step_cost(g, 0); }},
    {table_adagrad,
     [](const Tensor&, const Tensor&, const RowGradients& g, const RowStep&) -> Cost {
       return step_cost(g, 1);
     }},
    {table_rowwise_adagrad,
     [](const Tensor&, const Tensor&, const RowGradients& g, const RowStep&) -> Cost {
       return step_cost(g, 0);
     }},
    {table_adam,
     [](const Tensor&, const Tensor&, const Tensor&, const RowGradients& g,
        const RowStep&) -> Cost { return step_cost(g, 2); }},
    {dot_interaction,
     [](const Tensor& out, const Tensor& x) -> Cost {
       return {.flops = interaction_flops(x), .bytes = bytes(out) + bytes(x)};
     }},
    {dot_interaction_backward,
     [](const Tensor& dx, const Tensor& dout, const Tensor& x) -> Cost {
       return {.flops = 2 * interaction_flops(x), .bytes = bytes(dx) + bytes(dout) + bytes(x)};
     }},
    {sample_threshold,
     [](const Tensor& x, int64_t, int64_t samples) -> Cost {
       return {.bytes = 4 * std::min(numel(x), static_cast<double>(samples))};
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

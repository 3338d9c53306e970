#include "core/kernels/embedding_bag.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

using autograd::TableGradient;

// The tables' gradient goes to their TableGradient; the engine sees none arrive at them.
struct EmbeddingBag final : Node {
  std::shared_ptr<TableGradient> gradient;
  Saved rows, offsets, weights;
  BagMode mode = BagMode::sum;
  std::string_view name() const override { return "embedding_bag"; }
  Tensors backward(const Tensors& dy) override {
    const auto tensor = [](const Saved& x) { return x.defined() ? x.get() : Tensor(); };
    if (needs(0)) gradient->add(dy[0], {rows, tensor(offsets), tensor(weights), mode});
    if (!needs(1)) return {Tensor(), Tensor()};
    const Tensor first = floats(dy[0], {dy[0].size(0), dy[0].size(2)});
    kernel::take_first(first, dy[0]);
    return {Tensor(), as_gradient(*this, 1, first)};
  }
};

}  // namespace

Tensor embedding_bag(const Tensor& tables, const std::shared_ptr<TableGradient>& gradient,
                     const kernel::Bags& bags, const Tensor& first) {
  const kernel::TableLayout layout = gradient->layout();
  const int64_t count = layout.tables();
  const int64_t all = bags.offsets.defined() ? bags.offsets.numel() - 1 : bags.rows.numel();
  check(all >= 0 && all % count == 0,
        "[ops.embedding_bag] bags; expected as many for each of {} tables, got {}", count, all);
  const int64_t samples = all / count, leading = first.defined() ? 1 : 0;
  Tensor y = floats(tables, {samples, leading + count, gradient->width()});
  kernel::embedding_bag(y, tables, bags, layout);
  if (first.defined()) kernel::put_first(y, cast_of(first, DType::f32));
  return record<EmbeddingBag>(y, {tables, first}, [&](EmbeddingBag& n) {
    n.gradient = gradient, n.mode = bags.mode;
    n.rows = bags.rows, n.offsets = bags.offsets, n.weights = bags.weights;
  });
}

}  // namespace lockstep::ops

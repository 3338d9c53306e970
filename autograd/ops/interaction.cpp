#include "core/kernels/interaction.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

struct DotInteraction final : Node {
  Saved x;  // as f32
  std::string_view name() const override { return "dot_interaction"; }
  Tensors backward(const Tensors& dy) override {
    const Tensor dx = floats(dy[0], x.get().shape());
    kernel::dot_interaction_backward(dx, dy[0], x);
    return {as_gradient(*this, 0, dx)};
  }
};

}  // namespace

Tensor dot_interaction(const Tensor& x) {
  check(x.rank() == 3, "[ops.dot_interaction] x; expected [samples, vectors, width], got {}", x);
  const Tensor wide = cast_of(x, DType::f32);
  Tensor y = floats(x, {x.size(0), kernel::interaction_width(x.size(1), x.size(2))});
  kernel::dot_interaction(y, wide);
  return record<DotInteraction>(y, {x}, [&](DotInteraction& n) { n.x = wide; });
}

}  // namespace lockstep::ops

#include "autograd/ops/helpers.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"

namespace lockstep::ops {
namespace {

struct Softmax final : Node {
  Saved y;
  std::string_view name() const override { return "softmax"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, y);
    kernel::softmax_backward(as_rows(dx), as_rows(dy[0]), as_rows(y));
    return {dx};
  }
};

struct SoftmaxCrossEntropySum final : Node {
  Saved logits, lse, targets;
  int64_t ignore = kIgnoreIndex;
  std::string_view name() const override { return "softmax_cross_entropy_sum"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dlogits = gradient_for(0, logits);
    kernel::softmax_cross_entropy_backward(as_rows(dlogits), dy[0], as_rows(logits), lse, targets,
                                           ignore);
    return {dlogits};
  }
};

struct BceWithLogitsSum final : Node {
  Saved logits, targets;
  std::string_view name() const override { return "bce_with_logits_sum"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dlogits = gradient_for(0, logits);
    kernel::bce_with_logits_backward(dlogits, dy[0], logits, targets);
    return {dlogits};
  }
};

Tensor sum_of(const Tensor& losses) {
  Tensor y = Tensor::empty({}, losses.dtype(), losses.device());
  kernel::sum(y, losses);
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x) {
  Tensor y = floats(x, x.shape());
  kernel::softmax(as_rows(y), as_rows(x));
  return record<Softmax>(y, {x}, [&](Softmax& n) { n.y = y; });
}

Tensor softmax_cross_entropy_sum(const Tensor& logits, const Tensor& targets, int64_t ignore) {
  const int64_t rows = logits.shape().rows();
  check(targets.numel() == rows,
        "[ops.softmax_cross_entropy_sum] targets; expected {} for logits of {}, got {}", rows,
        logits.shape(), targets.shape());
  const Tensor losses = floats(logits, {rows}), lse = floats(logits, {rows});
  const Tensor flat = targets.reshape({rows});
  kernel::softmax_cross_entropy(losses, lse, as_rows(logits), flat, ignore);
  return record<SoftmaxCrossEntropySum>(sum_of(losses), {logits}, [&](SoftmaxCrossEntropySum& n) {
    n.logits = logits, n.lse = lse, n.targets = flat, n.ignore = ignore;
  });
}

Tensor bce_with_logits_sum(const Tensor& logits, const Tensor& targets) {
  const Tensor losses = floats(logits, logits.shape());
  kernel::bce_with_logits(losses, logits, targets);
  return record<BceWithLogitsSum>(sum_of(losses), {logits}, [&](BceWithLogitsSum& n) {
    n.logits = logits, n.targets = targets;
  });
}

}  // namespace lockstep::ops

#include "core/kernels/softmax_xent.h"

#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/softmax_loops.h"

namespace lockstep::cpu {
namespace {

const SoftmaxLoops& loops() { return LOCKSTEP_PICK_LOOPS(Softmax); }

void softmax(const Tensor& out, const Tensor& x) {
  expect_same("softmax", {&x, &out});
  const int64_t rows = x.shape().rows(), width = x.shape().last();
  const float* from = x.data<float>();
  float* to = out.mutable_data<float>();
  const auto& with = loops();
  if (width == 0) return;
  parallel_for(rows, row_grain(8 * width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) with.softmax(to + n * width, from + n * width, width);
  });
}

void softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y) {
  expect_same("softmax_backward", {&y, &dx, &dy});
  const int64_t rows = y.shape().rows(), width = y.shape().last();
  const float *value = y.data<float>(), *d = dy.data<float>();
  float* to = dx.mutable_data<float>();
  const auto& with = loops();
  if (width == 0) return;
  parallel_for(rows, row_grain(2 * width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      with.softmax_backward(to + n * width, d + n * width, value + n * width, width);
  });
}

// Targets of either integer type, checked as a whole before anything is written.
class Targets {
 public:
  Targets(std::string_view kernel, const Tensor& targets, int64_t rows, int64_t classes,
          int64_t ignore) {
    check(targets.dtype() == DType::i32 || targets.dtype() == DType::i64,
          "[kernel.{}] dtype of targets; expected i32 or i64, got {}", kernel,
          name_of(targets.dtype()));
    check(targets.numel() == rows, "[kernel.{}] targets; expected {}, got {}", kernel, rows,
          targets.numel());
    (targets.dtype() == DType::i32 ? narrow_ : wide_) = targets.bytes_data();
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t target = (*this)[n];
      check((target >= 0 && target < classes) || target == ignore,
            "[kernel.{}] target of row {}; expected 0 <= target < {} or {} (ignored), got {}",
            kernel, n, classes, ignore, target);
    }
  }
  int64_t operator[](int64_t n) const {
    return narrow_ ? static_cast<const int32_t*>(narrow_)[n]
                   : static_cast<const int64_t*>(wide_)[n];
  }

 private:
  const void *narrow_ = nullptr, *wide_ = nullptr;
};

void expect_logits(std::string_view kernel, const Tensor& logits, const Tensor& lse) {
  expect_f32(kernel, {&logits, &lse});
  check(logits.rank() >= 1 && logits.shape().last() >= 1,
        "[kernel.{}] logits; expected [N, C] with C >= 1, got {}", kernel,
        to_string(logits.shape()));
  check(lse.numel() == logits.shape().rows(), "[kernel.{}] lse; expected {} elements, got {}",
        kernel, logits.shape().rows(), lse.numel());
}

void softmax_cross_entropy(const Tensor& losses, const Tensor& lse, const Tensor& logits,
                           const Tensor& targets, int64_t ignore) {
  constexpr std::string_view kName = "softmax_cross_entropy";
  expect_logits(kName, logits, lse);
  const int64_t rows = logits.shape().rows(), width = logits.shape().last();
  expect_dtype(kName, "losses", losses, DType::f32);
  check(losses.numel() == rows, "[kernel.{}] losses; expected {} elements, got {}", kName, rows,
        losses.numel());
  const Targets target(kName, targets, rows, width, ignore);
  const float* x = logits.data<float>();
  float *loss = losses.mutable_data<float>(), *l = lse.mutable_data<float>();
  const auto& with = loops();
  parallel_for(rows, row_grain(8 * width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (target[n] == ignore)
        loss[n] = l[n] = 0.0f;
      else
        with.cross_entropy(loss + n, l + n, x + n * width, target[n], width);
    }
  });
}

void softmax_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss,
                                    const Tensor& logits, const Tensor& lse, const Tensor& targets,
                                    int64_t ignore) {
  constexpr std::string_view kName = "softmax_cross_entropy_backward";
  expect_same(kName, {&logits, &dlogits});
  expect_logits(kName, logits, lse);
  expect_dtype(kName, "dloss", dloss, DType::f32);
  const int64_t rows = logits.shape().rows(), width = logits.shape().last();
  const Targets target(kName, targets, rows, width, ignore);
  const float factor = static_cast<float>(dloss.item());
  const float *x = logits.data<float>(), *l = lse.data<float>();
  float* to = dlogits.mutable_data<float>();
  const auto& with = loops();
  parallel_for(rows, row_grain(6 * width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (target[n] == ignore)
        std::fill_n(to + n * width, width, 0.0f);
      else
        with.cross_entropy_backward(to + n * width, x + n * width, l[n], target[n], factor, width);
    }
  });
}

void bce_with_logits(const Tensor& losses, const Tensor& logits, const Tensor& targets) {
  expect_same("bce_with_logits", {&logits, &losses, &targets});
  const float *x = logits.data<float>(), *t = targets.data<float>();
  float* to = losses.mutable_data<float>();
  const auto& with = loops();
  parallel_for(logits.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
    with.bce(to + begin, x + begin, t + begin, end - begin);
  });
}

void bce_with_logits_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                              const Tensor& targets) {
  expect_same("bce_with_logits_backward", {&logits, &dlogits, &targets});
  expect_dtype("bce_with_logits_backward", "dloss", dloss, DType::f32);
  const float factor = static_cast<float>(dloss.item());
  const float *x = logits.data<float>(), *t = targets.data<float>();
  float* to = dlogits.mutable_data<float>();
  const auto& with = loops();
  parallel_for(logits.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
    with.bce_backward(to + begin, x + begin, t + begin, factor, end - begin);
  });
}

const Provide provided[] = {
    {kernel::softmax, DeviceType::cpu, softmax},
    {kernel::softmax_backward, DeviceType::cpu, softmax_backward},
    {kernel::softmax_cross_entropy, DeviceType::cpu, softmax_cross_entropy},
    {kernel::softmax_cross_entropy_backward, DeviceType::cpu, softmax_cross_entropy_backward},
    {kernel::bce_with_logits, DeviceType::cpu, bce_with_logits},
    {kernel::bce_with_logits_backward, DeviceType::cpu, bce_with_logits_backward},
};

}  // namespace
}  // namespace lockstep::cpu

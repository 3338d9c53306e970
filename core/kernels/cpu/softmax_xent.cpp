#include "core/kernels/softmax_xent.h"

#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/softmax_loops.h"

namespace lockstep::cpu {
namespace {

const SoftmaxLoops& loops() { return LOCKSTEP_PICK_LOOPS(Softmax); }

void softmax(const Tensor& out, const Tensor& x) {
  expect_same_floats("softmax", {&x, &out});
  const int64_t rows = x.shape().rows(), width = x.shape().last(), grain = row_grain(8 * width);
  const FloatsIn in(x);
  const FloatsOut to(out);
  const auto& with = loops();
  if (width == 0) return;
  const RowRooms rooms(any_narrow(in, to), 2, width, rows, grain);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end, int piece) {
    float *to_room = rooms.row(piece, 0), *in_room = rooms.row(piece, 1);
    for (int64_t at = begin * width; at < end * width; at += width) {
      with.softmax(to.place(at, to_room), in.read(at, width, in_room), width);
      to.write(at, width, to_room);
    }
  });
}

void softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y) {
  expect_same_floats("softmax_backward", {&y, &dx, &dy});
  const int64_t rows = y.shape().rows(), width = y.shape().last(), grain = row_grain(2 * width);
  const FloatsIn value(y), d(dy);
  const FloatsOut to(dx);
  const auto& with = loops();
  if (width == 0) return;
  const RowRooms rooms(any_narrow(value, d, to), 3, width, rows, grain);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end, int piece) {
    float *to_room = rooms.row(piece, 0), *d_room = rooms.row(piece, 1),
          *value_room = rooms.row(piece, 2);
    for (int64_t at = begin * width; at < end * width; at += width) {
      with.softmax_backward(to.place(at, to_room), d.read(at, width, d_room),
                            value.read(at, width, value_room), width);
      to.write(at, width, to_room);
    }
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
  expect_floats(kernel, {&logits});
  expect_dtype(kernel, "lse", lse, DType::f32);
  check(logits.rank() >= 1 && logits.shape().last() >= 1,
        "[kernel.{}] logits; expected [N, C] with C >= 1, got {}", kernel, logits.shape());
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
  const FloatsIn x(logits);
  float *loss = losses.mutable_data<float>(), *l = lse.mutable_data<float>();
  const auto& with = loops();
  const RowRooms rooms(x.narrow(), 1, width, rows, row_grain(8 * width));
  parallel_for(rows, row_grain(8 * width), [&](int64_t begin, int64_t end, int piece) {
    for (int64_t n = begin; n < end; ++n) {
      if (target[n] == ignore)
        loss[n] = l[n] = 0.0f;
      else
        with.cross_entropy(loss + n, l + n, x.read(n * width, width, rooms.row(piece, 0)),
                           target[n], width);
    }
  });
}

void softmax_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss,
                                    const Tensor& logits, const Tensor& lse, const Tensor& targets,
                                    int64_t ignore) {
  constexpr std::string_view kName = "softmax_cross_entropy_backward";
  expect_same_floats(kName, {&logits, &dlogits});
  expect_logits(kName, logits, lse);
  expect_floats(kName, {&dloss});
  const int64_t rows = logits.shape().rows(), width = logits.shape().last();
  const Targets target(kName, targets, rows, width, ignore);
  const float factor = static_cast<float>(dloss.item());
  const FloatsIn x(logits);
  const FloatsOut to(dlogits);
  const float* l = lse.data<float>();
  const auto& with = loops();
  const RowRooms rooms(any_narrow(x, to), 2, width, rows, row_grain(6 * width));
  parallel_for(rows, row_grain(6 * width), [&](int64_t begin, int64_t end, int piece) {
    float *to_room = rooms.row(piece, 0), *x_room = rooms.row(piece, 1);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * width;
      float* row = to.place(at, to_room);
      if (target[n] == ignore)
        std::fill_n(row, width, 0.0f);
      else
        with.cross_entropy_backward(row, x.read(at, width, x_room), l[n], target[n], factor, width);
      to.write(at, width, to_room);
    }
  });
}

void bce_with_logits(const Tensor& losses, const Tensor& logits, const Tensor& targets) {
  constexpr std::string_view kName = "bce_with_logits";
  expect_same_floats(kName, {&logits, &losses, &targets});
  expect_dtype(kName, "losses", losses, DType::f32);
  map_floats(kGrain / 8, losses, loops().bce, logits, targets);
}

void bce_with_logits_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                              const Tensor& targets) {
  expect_same_floats("bce_with_logits_backward", {&logits, &dlogits, &targets});
  expect_floats("bce_with_logits_backward", {&dloss});
  const float factor = static_cast<float>(dloss.item());
  map_floats(
      kGrain / 8, dlogits,
      [with = loops().bce_backward, factor](float* to, const float* x, const float* t, int64_t n) {
        with(to, x, t, factor, n);
      },
      logits, targets);
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

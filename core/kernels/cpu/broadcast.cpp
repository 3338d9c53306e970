#include <array>
#include <numeric>

#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/floats.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

namespace lockstep::cpu {
namespace {

static_assert(static_cast<int>(kernel::Binary::divide) == static_cast<int>(BinaryOp::divide));

// Extents of the larger shape and steps (in elements) of up to two operands; a step of 0 stretches.
// Neighbouring dimensions that every operand walks alike are merged.
struct Walk {
  int rank = 0;
  std::array<int64_t, Shape::kMaxRank> extent{};
  std::array<std::array<int64_t, Shape::kMaxRank>, 2> step{};

  int64_t inner() const { return rank == 0 ? 1 : extent[rank - 1]; }
  int64_t inner_step(int operand) const { return rank == 0 ? 1 : step[operand][rank - 1]; }
  int64_t outer() const {
    int64_t n = 1;
    for (int d = 0; d + 1 < rank; ++d) n *= extent[d];
    return n;
  }
  /// Where row `index` of the outer dimensions begins in an operand.
  int64_t offset(int operand, int64_t index) const {
    int64_t at = 0;
    for (int d = rank - 2; d >= 0; --d) {
      at += index % extent[d] * step[operand][d];
      index /= extent[d];
    }
    return at;
  }
};

// Steps of an operand of shape `small` in a walk over `large`; false where it does not broadcast.
bool steps_of(const Shape& small, const Shape& large, std::array<int64_t, Shape::kMaxRank>& step) {
  const int shift = large.rank() - small.rank();
  if (shift < 0) return false;
  int64_t run = 1;
  for (int d = large.rank() - 1; d >= 0; --d) {
    const int64_t extent = d < shift ? 1 : small[d - shift];
    if (extent != large[d] && extent != 1) return false;
    step[d] = extent == 1 ? 0 : run;
    run *= extent;
  }
  return true;
}

Walk walk_over(const Shape& large, const Shape& a, const Shape& b, std::string_view kernel) {
  std::array<std::array<int64_t, Shape::kMaxRank>, 2> step{};
  check(steps_of(a, large, step[0]) && steps_of(b, large, step[1]),
        "[kernel.{}] shapes; {} and {} do not broadcast to {}", kernel, to_string(a), to_string(b),
        to_string(large));
  Walk walk;
  for (int d = 0; d < large.rank(); ++d) {
    if (large[d] == 1) continue;
    const int last = walk.rank - 1;
    const auto continues = [&](int o) { return walk.step[o][last] == step[o][d] * large[d]; };
    if (last >= 0 && continues(0) && continues(1)) {
      walk.extent[last] *= large[d];
      for (int o : {0, 1}) walk.step[o][last] = step[o][d];
    } else {
      walk.extent[walk.rank] = large[d];
      for (int o : {0, 1}) walk.step[o][walk.rank] = step[o][d];
      ++walk.rank;
    }
  }
  return walk;
}

// An operand of a walk. One that is stretched is read again and again, so it is widened as a whole.
class Walked {
 public:
  Walked(const Tensor& x, int64_t numel, int64_t inner_step)
      : whole_(x.numel() < numel ? x : Tensor()),
        floats_(x.numel() < numel ? FloatsIn(whole_.data()) : FloatsIn(x)),
        step_(inner_step) {}
  bool narrow() const { return floats_.narrow(); }
  int64_t step() const { return step_; }
  /// n elements along the inner dimension, from element i of the row that begins at `start`.
  const float* read(int64_t start, int64_t i, int64_t n, float* room) const {
    return floats_.read(start + i * step_, n, room);
  }

 private:
  Widened whole_;
  FloatsIn floats_;
  int64_t step_;
};

void binary(const Tensor& out, const Tensor& a, const Tensor& b, kernel::Binary op) {
  expect_floats("binary", {&out, &a, &b});
  const Walk walk = walk_over(out.shape(), a.shape(), b.shape(), "binary");
  const Walked x(a, out.numel(), walk.inner_step(0)), y(b, out.numel(), walk.inner_step(1));
  const FloatsOut to(out);
  const bool narrow = any_narrow(x, y, to);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Elementwise);
  const auto code = static_cast<BinaryOp>(op);
  // Elements [begin, end) of the row that begins at `start` in out.
  const auto run = [&](int64_t start, int64_t start_x, int64_t start_y, int64_t begin,
                       int64_t end) {
    Room result, left, right;
    in_rooms(narrow, begin, end, [&](int64_t i, int64_t n) {
      loops.binary(to.place(start + i, result), x.read(start_x, i, n, left), x.step(),
                   y.read(start_y, i, n, right), y.step(), n, code);
      to.write(start + i, n, result);
    });
  };
  if (walk.rank <= 1) {
    parallel_for(out.numel(), 2 * kGrain,
                 [&](int64_t begin, int64_t end) { run(0, 0, 0, begin, end); });
    return;
  }
  const int64_t inner = walk.inner();
  parallel_for(walk.outer(), row_grain(inner / 2), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      run(i * inner, walk.offset(0, i), walk.offset(1, i), 0, inner);
  });
}

// Splits the walk of `out` through x into kept dimensions (out moves) and summed ones (it does
// not).
void sum_to(const Tensor& out, const Tensor& x) {
  expect_floats("sum_to", {&out, &x});
  const Walk walk = walk_over(x.shape(), out.shape(), x.shape(), "sum_to");
  if (out.numel() == 0) return;
  if (x.numel() == 0) return kernel::fill(out, 0);
  if (walk.rank == 0 || (walk.rank == 1 && walk.step[0][0] != 0))
    return kernel::cast(out.reshape({x.numel()}), x.reshape({x.numel()}));
  if (walk.rank == 1) return kernel::sum(out.reshape({1}), x);
  if (walk.rank == 2 && walk.step[0][0] == 0)
    return kernel::column_sum(out.reshape({out.numel()}),
                              x.reshape({walk.extent[0], walk.extent[1]}));

  Walk kept, summed;
  for (int d = 0; d < walk.rank; ++d) {
    Walk& into = walk.step[0][d] != 0 ? kept : summed;
    into.extent[into.rank] = walk.extent[d];
    into.step[0][into.rank] = walk.step[1][d];
    ++into.rank;
  }
  const Widened from(x);
  const Rounded to(out);
  const int64_t count = x.numel() / out.numel(), outer = summed.outer(), inner = summed.inner(),
                step = summed.inner_step(0), kept_inner = kept.inner(),
                kept_step = kept.inner_step(0);
  parallel_for(out.numel(), row_grain(4 * count), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* start =
          from.data() + kept.offset(0, i / kept_inner) + i % kept_inner * kept_step;
      double sum = 0;
      for (int64_t o = 0; o < outer; ++o) {
        const float* row = start + summed.offset(0, o);
        for (int64_t j = 0; j < inner; ++j) sum += row[j * step];
      }
      to.data()[i] = static_cast<float>(sum);
    }
  });
  to.store();
}

const Provide provided[] = {
    {kernel::binary, DeviceType::cpu, binary},
    {kernel::sum_to, DeviceType::cpu, sum_to},
};

}  // namespace
}  // namespace lockstep::cpu

#include "core/kernels/elementwise.h"

#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/reduce_loops.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kBlock = 64;  // rows that are summed in f32; in double after that
constexpr int64_t kRows = 4;    // of them at a time, as the loop adds them
constexpr int64_t kColumns = kRoom / kRows;

// Rows are added while they are in the cache, in the order of column_sum.
void bias_relu_backward(const Tensor& dx, const Tensor& dbias, const Tensor& dy, const Tensor& y) {
  expect_same_floats("bias_relu_backward", {&y, &dy, &dx});
  if (!dbias.defined()) return kernel::unary_backward(dx, dy, y, y, kernel::Unary::relu);
  const int64_t columns = y.shape().last(), rows = y.shape().rows();
  expect_float_vector("bias_relu_backward", "dbias", dbias, columns);
  const FloatsIn value(y), d(dy);
  const FloatsOut to(dx);
  const Rounded db(dbias);
  const auto mask = LOCKSTEP_PICK_LOOPS(Elementwise).unary_backward;
  const auto add_rows = LOCKSTEP_PICK_LOOPS(Reduce).add_rows;
  const bool narrow = any_narrow(value, d, to);
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const Scratch<float> lines(checked_mul(blocks, columns));
  parallel_for(blocks, row_grain(kBlock * columns), [&](int64_t begin, int64_t end) {
    Room values, arriving, slopes;
    for (int64_t r = begin * kBlock; r < std::min(rows, end * kBlock); r += kRows) {
      float* line = lines.data() + r / kBlock * columns;
      if (r % kBlock == 0) std::fill_n(line, columns, 0.0f);
      const int64_t count = std::min(kRows, rows - r);
      if (!narrow) {
        const int64_t at = r * columns;
        float* slope = to.place(at, nullptr);
        const float* v = value.read(at, 0, nullptr);
        mask(slope, d.read(at, 0, nullptr), v, v, count * columns, UnaryOp::relu);
        add_rows(line, slope, count, columns, columns);
        continue;
      }
      for (int64_t c = 0; c < columns; c += kColumns) {
        const int64_t width = std::min(kColumns, columns - c);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = (r + i) * columns + c;
          float* slope = slopes + i * kColumns;
          const float* v = value.read(at, width, values);
          mask(slope, d.read(at, width, arriving), v, v, width, UnaryOp::relu);
          if (to.narrow())
            to.write(at, width, slope);
          else
            std::copy_n(slope, width, to.place(at, nullptr));
        }
        add_rows(line + c, slopes, count, width, kColumns);
      }
    }
  });
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += lines[block * columns + c];
    db.data()[c] = static_cast<float>(sum);
  }
  db.store();
}

const Provide provided[] = {
    {kernel::bias_relu_backward, DeviceType::cpu, bias_relu_backward},
};

}  // namespace
}  // namespace lockstep::cpu

#include "core/kernels/elementwise.h"

#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/reduce_loops.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kBlock = 64;  // rows that are summed in f32; in double after that
constexpr int64_t kRows = 4;    // of them at a time, as the loop adds them
constexpr int64_t kColumns = kRoom / kRows;

// Some rows: the first, how many, and how long they are.
struct Rows {
  int64_t first, count, columns;
};

// Operands of one type, where they lie.
template <class Element>
struct Alike {
  Element* dx;
  const Element *dy, *y;
  void (*loop)(Element*, float*, const Element*, const Element*, int64_t, int64_t);
  void operator()(float* line, const Rows& rows) const {
    const int64_t at = rows.first * rows.columns;
    loop(dx + at, line, dy + at, y + at, rows.count, rows.columns);
  }
};
template <class Element>
Alike<Element> alike(const Tensor& dx, const Tensor& dy, const Tensor& y,
                     decltype(Alike<Element>::loop) loop) {
  return {static_cast<Element*>(dx.mutable_bytes_data()),
          static_cast<const Element*>(dy.bytes_data()), static_cast<const Element*>(y.bytes_data()),
          loop};
}

// Each of its own type.
struct Mixed {
  FloatsIn value, d;
  FloatsOut to;
  void operator()(float* line, const Rows& rows) const {
    const auto mask = LOCKSTEP_PICK_LOOPS(Elementwise).unary_backward;
    const auto add_rows = LOCKSTEP_PICK_LOOPS(Reduce).add_rows;
    Room values, arriving, slopes;
    for (int64_t r = 0; r < rows.count; r += kRows) {
      const int64_t count = std::min(kRows, rows.count - r);
      for (int64_t c = 0; c < rows.columns; c += kColumns) {
        const int64_t width = std::min(kColumns, rows.columns - c);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = (rows.first + r + i) * rows.columns + c;
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
  }
};

// Rows are added while they are in the cache, in the order of column_sum.
void bias_relu_backward(const Tensor& dx, const Tensor& dbias, const Tensor& dy, const Tensor& y) {
  expect_same_floats("bias_relu_backward", {&y, &dy, &dx});
  if (!dbias.defined()) return kernel::unary_backward(dx, dy, y, y, kernel::Unary::relu);
  const int64_t columns = y.shape().last(), rows = y.shape().rows();
  expect_float_vector("bias_relu_backward", "dbias", dbias, columns);
  const Rounded db(dbias);
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const Scratch<float> lines(checked_mul(blocks, columns));
  const auto in_blocks = [&](const auto& add) {
    parallel_for(blocks, row_grain(kBlock * columns), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock;
        float* line = lines.data() + block * columns;
        std::fill_n(line, columns, 0.0f);
        add(line, Rows{first, std::min(kBlock, rows - first), columns});
      }
    });
  };
  const ReluBackward& loops = LOCKSTEP_PICK_LOOPS(Reduce).relu_backward;
  if (dx.dtype() != y.dtype() || dy.dtype() != y.dtype())
    in_blocks(Mixed{FloatsIn(y), FloatsIn(dy), FloatsOut(dx)});
  else if (y.dtype() == DType::f32)
    in_blocks(alike<float>(dx, dy, y, loops.f32));
  else
    in_blocks(alike<uint16_t>(dx, dy, y, y.dtype() == DType::f16 ? loops.f16 : loops.bf16));
  for (int64_t c = 0; c < columns; c += kColumns) {
    const int64_t width = std::min(kColumns, columns - c);
    double sums[kColumns] = {};
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = 0; i < width; ++i) sums[i] += lines[block * columns + c + i];
    for (int64_t i = 0; i < width; ++i) db.data()[c + i] = static_cast<float>(sums[i]);
  }
  db.store();
}

const Provide provided[] = {
    {kernel::bias_relu_backward, DeviceType::cpu, bias_relu_backward},
};

}  // namespace
}  // namespace lockstep::cpu

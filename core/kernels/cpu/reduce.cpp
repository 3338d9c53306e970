#include "core/kernels/reduce.h"

#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/reduce_loops.h"

namespace lockstep::cpu {
namespace {

const ReduceLoops& loops() { return LOCKSTEP_PICK_LOOPS(Reduce); }

// Blocks of a fixed size, added in order: the result does not depend on the thread budget.
template <class T>
double in_blocks(const void* data, int64_t n, double (*block_sum)(const T*, int64_t)) {
  constexpr int64_t kBlock = 4 * kGrain;
  const T* from = static_cast<const T*>(data);
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const Scratch<double> sums(blocks);
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      sums[b] = block_sum(from + b * kBlock, std::min(kBlock, n - b * kBlock));
  });
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += sums[b];
  return sum;
}
double in_blocks(const Tensor& x, const BlockSum& block_sum) {
  const void* data = x.bytes_data();
  if (x.dtype() == DType::f16) return in_blocks(data, x.numel(), block_sum.f16);
  if (x.dtype() == DType::bf16) return in_blocks(data, x.numel(), block_sum.bf16);
  return in_blocks(data, x.numel(), block_sum.f32);
}

void sum(const Tensor& out, const Tensor& x) {
  expect_floats("sum", {&out, &x});
  check(out.numel() == 1, "[kernel.sum] out; expected one element, got {}", out.shape());
  const double total = in_blocks(x, loops().sum);
  const Rounded to(out);
  *to.data() = static_cast<float>(total);
  to.store();
}

double sum_of_squares(const Tensor& x) {
  expect_floats("sum_of_squares", {&x});
  return in_blocks(x, loops().sum_of_squares);
}

// line[c] += Σ_r x[r, c] for `rows` rows that begin at element `at` of x and `stride` elements
// apart. The loop takes four rows at a time, and so do the rooms: the sums are the same.
void add_rows(const ReduceLoops& with, const FloatsIn& x, float* line, int64_t at, int64_t rows,
              int64_t columns, int64_t stride) {
  if (!x.narrow()) return with.add_rows(line, x.read(at, 0, nullptr), rows, columns, stride);
  constexpr int64_t kRows = 4, kColumns = 512;
  alignas(64) float room[kRows * kColumns];
  for (int64_t c = 0; c < columns; c += kColumns) {
    const int64_t width = std::min(kColumns, columns - c);
    for (int64_t r = 0; r < rows; r += kRows) {
      const int64_t count = std::min(kRows, rows - r);
      for (int64_t i = 0; i < count; ++i)
        x.read(at + (r + i) * stride + c, width, room + i * kColumns);
      with.add_rows(line + c, room, count, width, kColumns);
    }
  }
}

// Each thread takes a range of columns and adds the rows in blocks, so that the result does not
// depend on the thread budget either.
void column_sum(const Tensor& out, const Tensor& x) {
  expect_floats("column_sum", {&x});
  check(x.rank() >= 1, "[kernel.column_sum] expected [N, C], got {}", x.shape());
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  expect_float_vector("column_sum", "out", out, columns);
  const FloatsIn from(x);
  const Rounded to(out);
  const auto& with = loops();
  constexpr int64_t kRows = 64, kLine = 64;
  const Scratch<float> lines(columns);
  const Scratch<double> totals(columns);
  const int64_t lines_of_columns = (columns + kLine - 1) / kLine;
  parallel_for(lines_of_columns, row_grain(rows * kLine), [&](int64_t begin, int64_t end) {
    const int64_t c = begin * kLine, width = std::min(end * kLine, columns) - c;
    float* line = lines.data() + c;
    double* total = totals.data() + c;
    std::fill_n(total, width, 0.0);
    for (int64_t r = 0; r < rows; r += kRows) {
      std::fill_n(line, width, 0.0f);
      add_rows(with, from, line, r * columns + c, std::min(kRows, rows - r), width, columns);
      for (int64_t i = 0; i < width; ++i) total[i] += line[i];
    }
    for (int64_t i = 0; i < width; ++i) to.data()[c + i] = static_cast<float>(total[i]);
  });
  to.store();
}

int64_t first_non_finite(const Tensor& x) {
  expect_floats("first_non_finite", {&x});
  constexpr int64_t kPieceGrain = 4 * kGrain;
  const FloatsIn from(x);
  const auto& with = loops();
  const int pieces = parallel_pieces(x.numel(), kPieceGrain);
  const Scratch<int64_t> found(pieces);
  std::fill_n(found.data(), pieces, int64_t{-1});
  parallel_for(x.numel(), kPieceGrain, [&](int64_t begin, int64_t end, int piece) {
    Room room;
    in_rooms(from.narrow(), begin, end, [&](int64_t at, int64_t n) {
      if (found[piece] >= 0) return;
      const int64_t i = with.first_non_finite(from.read(at, n, room), n);
      if (i >= 0) found[piece] = at + i;
    });
  });
  for (int piece = 0; piece < pieces; ++piece)
    if (found[piece] >= 0) return found[piece];
  return -1;
}

void argmax(const Tensor& out, const Tensor& x) {
  expect_floats("argmax", {&x});
  expect_dtype("argmax", "out", out, DType::i64);
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  check(out.numel() == rows, "[kernel.argmax] out; expected {} elements, got {}", rows,
        out.numel());
  check(columns > 0 || rows == 0, "[kernel.argmax] rows without elements: {}", x.shape());
  const FloatsIn from(x);
  int64_t* to = out.mutable_data<int64_t>();
  const auto& with = loops();
  const RowRooms rooms(from.narrow(), 1, columns, rows, row_grain(columns));
  parallel_for(rows, row_grain(columns), [&](int64_t begin, int64_t end, int piece) {
    for (int64_t n = begin; n < end; ++n)
      to[n] = with.argmax(from.read(n * columns, columns, rooms.row(piece, 0)), columns);
  });
}

const Provide provided[] = {
    {kernel::sum, DeviceType::cpu, sum},
    {kernel::column_sum, DeviceType::cpu, column_sum},
    {kernel::sum_of_squares, DeviceType::cpu, sum_of_squares},
    {kernel::first_non_finite, DeviceType::cpu, first_non_finite},
    {kernel::argmax, DeviceType::cpu, argmax},
};

}  // namespace
}  // namespace lockstep::cpu

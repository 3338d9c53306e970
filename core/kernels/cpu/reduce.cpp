#include "core/kernels/reduce.h"

#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/reduce_loops.h"

namespace lockstep::cpu {
namespace {

const ReduceLoops& loops() { return LOCKSTEP_PICK_LOOPS(Reduce); }

// Blocks of a fixed size, added in order: the result does not depend on the thread budget.
double in_blocks(const Tensor& x, double (*block_sum)(const float*, int64_t)) {
  constexpr int64_t kBlock = 4 * kGrain;
  const float* from = x.data<float>();
  const int64_t n = x.numel(), blocks = (n + kBlock - 1) / kBlock;
  const Scratch<double> sums(blocks);
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      sums[b] = block_sum(from + b * kBlock, std::min(kBlock, n - b * kBlock));
  });
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += sums[b];
  return sum;
}

void sum(const Tensor& out, const Tensor& x) {
  expect_f32("sum", {&out, &x});
  check(out.numel() == 1, "[kernel.sum] out; expected one element, got {}", to_string(out.shape()));
  const double total = in_blocks(x, loops().sum);
  *out.mutable_data<float>() = static_cast<float>(total);
}

double sum_of_squares(const Tensor& x) {
  expect_f32("sum_of_squares", {&x});
  return in_blocks(x, loops().sum_of_squares);
}

// Each thread takes a range of columns and adds the rows in blocks, so that the result does not
// depend on the thread budget either.
void column_sum(const Tensor& out, const Tensor& x) {
  expect_f32("column_sum", {&x});
  check(x.rank() >= 1, "[kernel.column_sum] expected [N, C], got {}", to_string(x.shape()));
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  expect_vector("column_sum", "out", out, columns);
  const float* from = x.data<float>();
  float* to = out.mutable_data<float>();
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
      with.add_rows(line, from + r * columns + c, std::min(kRows, rows - r), width, columns);
      for (int64_t i = 0; i < width; ++i) total[i] += line[i];
    }
    for (int64_t i = 0; i < width; ++i) to[c + i] = static_cast<float>(total[i]);
  });
}

int64_t first_non_finite(const Tensor& x) {
  expect_f32("first_non_finite", {&x});
  constexpr int64_t kPieceGrain = 4 * kGrain;
  const float* from = x.data<float>();
  const int pieces = parallel_pieces(x.numel(), kPieceGrain);
  const Scratch<int64_t> found(pieces);
  std::fill_n(found.data(), pieces, int64_t{-1});
  parallel_for(x.numel(), kPieceGrain, [&](int64_t begin, int64_t end, int piece) {
    const int64_t at = loops().first_non_finite(from + begin, end - begin);
    found[piece] = at < 0 ? -1 : begin + at;
  });
  for (int piece = 0; piece < pieces; ++piece)
    if (found[piece] >= 0) return found[piece];
  return -1;
}

void argmax(const Tensor& out, const Tensor& x) {
  expect_f32("argmax", {&x});
  expect_dtype("argmax", "out", out, DType::i64);
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  check(out.numel() == rows, "[kernel.argmax] out; expected {} elements, got {}", rows,
        out.numel());
  check(columns > 0 || rows == 0, "[kernel.argmax] rows without elements: {}",
        to_string(x.shape()));
  const float* from = x.data<float>();
  int64_t* to = out.mutable_data<int64_t>();
  const auto& with = loops();
  parallel_for(rows, row_grain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) to[n] = with.argmax(from + n * columns, columns);
  });
}

void fold(const Tensor& out, kernel::FoldInputs inputs) {
  check(inputs.count >= 1, "[kernel.fold] expected at least one input, got {}", inputs.count);
  const DType dtype = out.dtype();
  check(dtype != DType::u8, "[kernel.fold] dtype; expected f32, f16, bf16, i32 or i64, got u8");
  void* to = out.mutable_bytes_data();
  const auto& with = loops();
  parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const auto run = [&](auto loop, auto* p) { loop(p, inputs.inputs, inputs.count, begin, end); };
    switch (dtype) {
      case DType::f32:
        return run(with.fold_f32, static_cast<float*>(to));
      case DType::f16:
        return run(with.fold_f16, static_cast<uint16_t*>(to));
      case DType::bf16:
        return run(with.fold_bf16, static_cast<uint16_t*>(to));
      case DType::i32:
        return run(with.fold_i32, static_cast<uint32_t*>(to));
      case DType::i64:
        return run(with.fold_i64, static_cast<uint64_t*>(to));
      case DType::u8:
        return;
    }
  });
}

const Provide provided[] = {
    {kernel::sum, DeviceType::cpu, sum},
    {kernel::column_sum, DeviceType::cpu, column_sum},
    {kernel::sum_of_squares, DeviceType::cpu, sum_of_squares},
    {kernel::first_non_finite, DeviceType::cpu, first_non_finite},
    {kernel::argmax, DeviceType::cpu, argmax},
    {kernel::fold, DeviceType::cpu, fold},
};

}  // namespace
}  // namespace lockstep::cpu

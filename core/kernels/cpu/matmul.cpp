#include "core/kernels/matmul.h"

#include "core/kernels/cpu/dnnl_product.h"
#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/product_loops.h"

namespace lockstep::cpu {
namespace {

using kernel::MatmulOptions;
using kernel::MatrixIn;
using Steps = ProductKey::Steps;

constexpr double kWorthAThread = 1 << 20;  // multiply-adds: some ten microseconds

// A matrix of any floating dtype, or a batch of them, where it lies.
struct Matrix {
  std::byte* data;
  DType dtype;
  Steps steps;
  void* at(int64_t batch, int64_t row, int64_t column) const {
    const int64_t step = batch * steps.batch + row * steps.row + column * steps.column;
    return data + step * size_of(dtype);
  }
};

// C[batch, m, n] = A · B (+ C) (+ bias[n]), then ReLU.
struct Product {
  int64_t batch, m, n, k;
  Matrix c, a, b;
  const float* bias;
  bool relu;
  bool accumulate;
};

// What one thread makes of C at a time.
struct Part {
  int64_t batch, batches, row, rows, column, columns;
  int piece;  // of parallel_for
};

// f(part) on as many threads as the product is worth: whole matrices, or rows or columns,
// whichever there are more of, cut at multiples of a register tile.
template <class F>
void in_parts(const Product& p, int64_t tile_rows, int64_t tile_columns, F f) {
  const double depth = static_cast<double>(p.k + 8);  // what is read and written takes time, too
  const auto grain = [&](double adds) {
    return std::max<int64_t>(1, static_cast<int64_t>(kWorthAThread / adds));
  };
  if (p.batch > 1)
    return parallel_for(p.batch, grain(depth * p.m * p.n),
                        [&](int64_t begin, int64_t end, int piece) {
                          f(Part{begin, end - begin, 0, p.m, 0, p.n, piece});
                        });
  const bool by_rows = p.m >= p.n;
  const int64_t extent = by_rows ? p.m : p.n, other = by_rows ? p.n : p.m,
                tile = by_rows ? tile_rows : tile_columns;
  parallel_for((extent + tile - 1) / tile, grain(depth * tile * std::max<int64_t>(other, 32)),
               [&](int64_t begin, int64_t end, int piece) {
                 const int64_t from = begin * tile, count = std::min(end * tile, extent) - from;
                 f(by_rows ? Part{0, 1, from, count, 0, p.n, piece}
                           : Part{0, 1, 0, p.m, from, count, piece});
               });
}

FloatCode code_of(DType dtype) {
  return dtype == DType::f32   ? FloatCode::f32
         : dtype == DType::f16 ? FloatCode::f16
                               : FloatCode::bf16;
}
ProductOperand operand(const Matrix& x, const void* at) {
  return {at, code_of(x.dtype), x.steps.row, x.steps.column};
}

void run_loops(const Product& p) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(Product);
  ProductPart whole{.m = p.m,
                    .n = p.n,
                    .k = p.k,
                    .a = operand(p.a, p.a.data),
                    .b = operand(p.b, p.b.data),
                    .c = p.c.data,
                    .c_code = code_of(p.c.dtype),
                    .c_row = p.c.steps.row,
                    .accumulate = p.accumulate,
                    .bias = p.bias,
                    .relu = p.relu,
                    .room = nullptr};
  // Rooms for all threads, taken by the calling one: none waits for the system in the middle.
  const int64_t floats = (loops.room_floats(whole) + 15) / 16 * 16;
  const Scratch<float> rooms(checked_mul(thread_budget(), floats));
  in_parts(p, loops.rows, loops.columns, [&](const Part& part) {
    ProductPart piece = whole;
    piece.m = part.rows, piece.n = part.columns;
    if (p.bias != nullptr) piece.bias = p.bias + part.column;
    piece.room = rooms.data() + part.piece * floats;
    for (int64_t i = part.batch; i < part.batch + part.batches; ++i) {
      piece.a.data = p.a.at(i, part.row, 0);
      piece.b.data = p.b.at(i, 0, part.column);
      piece.c = p.c.at(i, part.row, part.column);
      loops.run(piece);
    }
  });
}

// Note [Narrow products]
// A tile is as wide as two vectors, so a C of fewer columns than one would waste most of it. Its
// transpose has few rows, of which a tile may have four: Cᵀ = Bᵀ · Aᵀ is made instead, where C has
// the more rows, and turned around when it is finished. Sums have the same order, so the bits are
// the same.
constexpr int64_t kNarrow = 15, kTall = 64;
bool is_narrow(const Product& p) {
  return p.batch == 1 && p.n <= kNarrow && p.m >= kTall && !p.accumulate && p.c.steps.row == p.n;
}

Matrix transposed(Matrix x) {
  std::swap(x.steps.row, x.steps.column);
  return x;
}

// Rows of C from what was summed for its transpose.
void turn(const Product& p, const float* sums) {
  const auto& cast = LOCKSTEP_PICK_LOOPS(Cast);
  parallel_for(p.m, row_grain(2 * p.n), [&](int64_t begin, int64_t end) {
    Room room;
    const int64_t most = kRoom / p.n;
    for (int64_t row = begin; row < end; row += most) {
      const int64_t rows = std::min(most, end - row);
      void* at = p.c.at(0, row, 0);
      float* to = p.c.dtype == DType::f32 ? static_cast<float*>(at) : room;
      for (int64_t j = 0; j < p.n; ++j) {
        const float* from = sums + j * p.m + row;
        const float bias = p.bias == nullptr ? -0.0f : p.bias[j];  // x + -0 is x, whatever it is
        for (int64_t i = 0; i < rows; ++i) {
          const float y = from[i] + bias;
          to[i * p.n + j] = p.relu && y < 0 ? 0 : y;
        }
      }
      if (p.c.dtype == DType::f16) cast.float_to_half(static_cast<uint16_t*>(at), to, rows * p.n);
      if (p.c.dtype == DType::bf16)
        cast.float_to_bfloat16(static_cast<uint16_t*>(at), to, rows * p.n);
    }
  });
}

void run_narrow(const Product& p) {
  const Scratch<float> sums(checked_mul(p.n, p.m));
  run_loops({.batch = 1,
             .m = p.n,
             .n = p.m,
             .k = p.k,
             .c = {reinterpret_cast<std::byte*>(sums.data()), DType::f32, {0, p.m, 1}},
             .a = transposed(p.b),
             .b = transposed(p.a),
             .bias = nullptr,
             .relu = false,
             .accumulate = false});
  turn(p, sums.data());
}

constexpr int64_t kNativeTile = 16;

// Of rows of floats by their bits: what lies between -0 and -infinity becomes 0. oneDNN's own would
// hide NaN.
template <class Bits>
void relu(const Product& p, const Part& part, Bits minus_zero, Bits minus_infinity) {
  for (int64_t i = part.batch; i < part.batch + part.batches; ++i)
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      auto* row = static_cast<Bits*>(p.c.at(i, r, part.column));
      for (int64_t c = 0; c < part.columns; ++c)
        if (row[c] > minus_zero && row[c] <= minus_infinity) row[c] = 0;
    }
}

void run_native(const Product& p) {
  in_parts(p, kNativeTile, kNativeTile, [&](const Part& part) {
    product({.batch = part.batches,
             .m = part.rows,
             .n = part.columns,
             .k = p.k,
             .a = p.a.steps,
             .b = p.b.steps,
             .c = p.c.steps,
             .accumulate = p.accumulate,
             .bias = p.bias != nullptr,
             .out = p.c.dtype},
            p.c.at(part.batch, part.row, part.column), p.a.at(part.batch, part.row, 0),
            p.b.at(part.batch, 0, part.column), p.bias == nullptr ? nullptr : p.bias + part.column);
    if (!p.relu) return;
    if (p.c.dtype == DType::f32)
      relu<uint32_t>(p, part, 0x80000000, 0xff800000);
    else
      relu<uint16_t>(p, part, 0x8000, 0xff80);
  });
}

void run(const Product& p) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  const bool native = p.k > 0 && p.a.dtype == DType::bf16 && p.b.dtype == DType::bf16 &&
                      p.c.dtype != DType::f16 && bf16_products() == Bf16Products::native;
  native ? run_native(p) : is_narrow(p) ? run_narrow(p) : run_loops(p);
}

// Steps of a stored matrix [rows, columns] as the product sees it.
Steps steps(int64_t batch, int64_t ld, bool transposed) {
  return transposed ? Steps{batch, 1, ld} : Steps{batch, ld, 1};
}

// The bias as f32.
Widened bias_of(std::string_view kernel, const Tensor& bias, int64_t n) {
  if (bias.defined()) expect_float_vector(kernel, "bias", bias, n);
  return Widened(bias);
}

Matrix matrix(const void* data, DType dtype, int64_t offset, const Steps& steps) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return {bytes + offset * size_of(dtype), dtype, steps};
}

void matmul(const Tensor& out, const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  expect_floats("matmul", {&out, &a, &b});
  const int rank = out.rank();
  check((rank == 2 || rank == 3) && a.rank() == rank && b.rank() == rank,
        "[kernel.matmul] expected three matrices or three batches of them, got {}, {} and {}",
        out.shape(), a.shape(), b.shape());
  const int64_t batch = rank == 3 ? out.size(0) : 1;
  const int64_t m = a.size(options.trans_a ? -1 : -2), k = a.size(options.trans_a ? -2 : -1);
  const int64_t n = b.size(options.trans_b ? -2 : -1), k_of_b = b.size(options.trans_b ? -1 : -2);
  check(k == k_of_b && out.size(-2) == m && out.size(-1) == n &&
            (rank == 2 || (a.size(0) == batch && b.size(0) == batch)),
        "[kernel.matmul] shapes do not fit; {}{} times {}{} into {}", a.shape(),
        options.trans_a ? " transposed" : "", b.shape(), options.trans_b ? " transposed" : "",
        out.shape());
  const Widened bias = bias_of("matmul", options.bias, n);
  const Matrix in_a =
                   matrix(a.bytes_data(), a.dtype(), 0, steps(m * k, a.size(-1), options.trans_a)),
               in_b =
                   matrix(b.bytes_data(), b.dtype(), 0, steps(k * n, b.size(-1), options.trans_b));
  run({.batch = batch,
       .m = m,
       .n = n,
       .k = k,
       .c = matrix(out.mutable_bytes_data(), out.dtype(), 0, {m * n, n, 1}),
       .a = in_a,
       .b = in_b,
       .bias = bias.data(),
       .relu = options.relu,
       .accumulate = options.accumulate});
}

void expect_inside(std::string_view what, const Tensor& buffer, const MatrixIn& x) {
  const int64_t end =
      x.rows == 0 || x.cols == 0
          ? x.offset
          : checked_add(x.offset, checked_add(checked_mul(x.rows - 1, x.ld), x.cols));
  check(
      x.offset >= 0 && x.rows >= 0 && x.cols >= 0 && x.ld >= x.cols && end <= buffer.numel(),
      "[kernel.matmul_strided] {} of {} x {} at {} with rows {} apart does not lie in {} elements",
      what, x.rows, x.cols, x.offset, x.ld, buffer.numel());
}

void matmul_strided(const Tensor& out_buffer, const MatrixIn& out, const MatrixIn& a,
                    const MatrixIn& b, const MatmulOptions& options) {
  expect_floats("matmul_strided", {&out_buffer, &a.buffer, &b.buffer});
  expect_inside("out", out_buffer, out);
  expect_inside("a", a.buffer, a);
  expect_inside("b", b.buffer, b);
  const int64_t m = options.trans_a ? a.cols : a.rows, k = options.trans_a ? a.rows : a.cols;
  const int64_t n = options.trans_b ? b.rows : b.cols, k_of_b = options.trans_b ? b.cols : b.rows;
  check(k == k_of_b && out.rows == m && out.cols == n,
        "[kernel.matmul_strided] shapes do not fit; {} x {} times {} x {} into {} x {}", m, k,
        k_of_b, n, out.rows, out.cols);
  const Widened bias = bias_of("matmul_strided", options.bias, n);
  const auto in = [](const MatrixIn& x, bool transposed) {
    return matrix(x.buffer.bytes_data(), x.buffer.dtype(), x.offset, steps(0, x.ld, transposed));
  };
  const Matrix in_a = in(a, options.trans_a), in_b = in(b, options.trans_b);
  run({.batch = 1,
       .m = m,
       .n = n,
       .k = k,
       .c = matrix(out_buffer.mutable_bytes_data(), out_buffer.dtype(), out.offset, {0, out.ld, 1}),
       .a = in_a,
       .b = in_b,
       .bias = bias.data(),
       .relu = options.relu,
       .accumulate = options.accumulate});
}

const Provide provided[] = {
    {kernel::matmul, DeviceType::cpu, matmul},
    {kernel::matmul_strided, DeviceType::cpu, matmul_strided},
};

}  // namespace
}  // namespace lockstep::cpu

#include "core/kernels/matmul.h"

#include "core/kernels/cpu/cast.h"
#include "core/kernels/cpu/dnnl_product.h"
#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

using kernel::MatmulOptions;
using kernel::MatrixIn;
using Steps = ProductKey::Steps;

constexpr int64_t kTile = 16;
constexpr double kWorthAThread = 1 << 20;  // multiply-adds: some ten microseconds

constexpr int64_t kResident = 1 << 19;  // f32 that stay in a second-level cache, 2 MiB, or near it

// A matrix of any floating dtype, or a batch of them, where it lies.
struct Matrix {
  std::byte* data;
  DType dtype;
  Steps steps;
  Matrix at(int64_t batch, int64_t row, int64_t column) const {
    const int64_t step = batch * steps.batch + row * steps.row + column * steps.column;
    return {data + step * size_of(dtype), dtype, steps};
  }
};

// How a batch of matrices lies in memory: lines of neighbouring elements, `step` apart.
struct Lines {
  int64_t count, length, step;
  Lines(int64_t rows, int64_t columns, const Steps& steps)
      : Lines(steps.column == 1 ? Lines(rows, columns, steps.row)
                                : Lines(columns, rows, steps.column)) {}
  std::byte* at(const Matrix& x, int64_t line) const {
    const int64_t start = line / count * x.steps.batch + line % count * step;
    return x.data + start * size_of(x.dtype);
  }

 private:
  Lines(int64_t lines, int64_t elements, int64_t apart)
      : count(apart == elements ? 1 : lines),
        length(apart == elements ? lines * elements : elements),
        step(apart) {}
};

// The same matrices as f32, one line after the other.
Steps dense(int64_t rows, int64_t columns, const Steps& steps) {
  return steps.column == 1 ? Steps{rows * columns, columns, 1} : Steps{rows * columns, 1, rows};
}

// An operand as the product wants it: where it lies, or widened into scratch memory, by as many
// threads as there are to spare.
class Operand {
 public:
  Operand(const Matrix& x, DType wanted, int64_t batch, int64_t rows, int64_t columns)
      : widened_(x.dtype == wanted ? 0 : batch * rows * columns), matrix_(x) {
    if (x.dtype == wanted) return;
    const Lines lines(rows, columns, x.steps);
    float* to = widened_.data();
    if (batch * lines.count == 1)
      parallel_for(lines.length, kGrain, [&](int64_t begin, int64_t end) {
        widen(to + begin, x.data + begin * size_of(x.dtype), x.dtype, end - begin);
      });
    else
      parallel_for(batch * lines.count, row_grain(lines.length), [&](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line)
          widen(to + line * lines.length, lines.at(x, line), x.dtype, lines.length);
      });
    matrix_ = {reinterpret_cast<std::byte*>(to), DType::f32, dense(rows, columns, x.steps)};
  }
  const Matrix& operator*() const { return matrix_; }

 private:
  Scratch<float> widened_;
  Matrix matrix_;
};

// Nothing to add up: zeros, or bias, or what is there already.
void empty_product(const ProductKey& key, float* c, const float* bias) {
  for (int64_t batch = 0; batch < key.batch; ++batch)
    for (int64_t i = 0; i < key.m; ++i)
      for (int64_t j = 0; j < key.n; ++j) {
        float& out = c[batch * key.c.batch + i * key.c.row + j];
        out = (key.accumulate ? out : 0.0f) + (bias ? bias[j] : 0.0f);
      }
}

// Operands and output lie as the product takes them.
void multiply_in_place(ProductKey key, const Matrix& c, const Matrix& a, const Matrix& b,
                       const float* bias) {
  key.a = a.steps, key.b = b.steps, key.c = c.steps;
  key.in = a.dtype, key.out = c.dtype;
  if (key.k == 0) return empty_product(key, reinterpret_cast<float*>(c.data), bias);
  product(key, c.data, a.data, b.data, bias);
}

// One piece on the calling thread: widened, multiplied and rounded while it is in the cache.
void multiply(const ProductKey& key, const Matrix& c, const Matrix& a, const Matrix& b,
              const float* bias) {
  const Operand in_a(a, key.in, key.batch, key.m, key.k), in_b(b, key.in, key.batch, key.k, key.n);
  if (c.dtype == key.out) return multiply_in_place(key, c, *in_a, *in_b, bias);
  const Scratch<float> sums(key.batch * key.m * key.n);
  const Matrix out{reinterpret_cast<std::byte*>(sums.data()), DType::f32,
                   dense(key.m, key.n, c.steps)};
  const Lines lines(key.m, key.n, c.steps);
  if (key.accumulate)
    for (int64_t line = 0; line < key.batch * lines.count; ++line)
      widen(sums.data() + line * lines.length, lines.at(c, line), c.dtype, lines.length);
  multiply_in_place(key, out, *in_a, *in_b, bias);
  for (int64_t line = 0; line < key.batch * lines.count; ++line)
    narrow(lines.at(c, line), c.dtype, sums.data() + line * lines.length, lines.length);
}

// f(begin, end) over [begin, end) in equal steps of at most `most` and multiples of `tile`.
template <class F>
void in_steps(int64_t begin, int64_t end, int64_t most, int64_t tile, F f) {
  const int64_t steps = (end - begin + most - 1) / most;
  const int64_t step = ((end - begin + steps - 1) / steps + tile - 1) / tile * tile;
  for (; begin < end; begin += step) f(begin, std::min(begin + step, end));
}

void run(ProductKey key, const Matrix& c, const Matrix& a, const Matrix& b, const float* bias) {
  if (key.batch == 0 || key.m == 0 || key.n == 0) return;
  const bool native = key.k > 0 && a.dtype == DType::bf16 && b.dtype == DType::bf16 &&
                      bf16_products() == Bf16Products::native;
  key.in = native ? DType::bf16 : DType::f32;
  key.out = native && c.dtype == DType::bf16 ? DType::bf16 : DType::f32;
  const bool in_place = a.dtype == key.in && b.dtype == key.in && c.dtype == key.out;
  if (key.k == 0 && in_place) return multiply_in_place(key, c, a, b, bias);
  const double depth = static_cast<double>(std::max<int64_t>(key.k, 1));
  const auto grain = [&](double adds) {
    return std::max<int64_t>(1, static_cast<int64_t>(kWorthAThread / adds));
  };
  // Of parts of so many f32, as many at a time as stay in the cache.
  const auto at_once = [&](int64_t elements, int64_t least) {
    return in_place ? INT64_MAX / 2 : std::max(least, kResident / elements);
  };
  if (key.batch > 1)
    return parallel_for(key.batch, grain(depth * key.m * key.n), [&](int64_t begin, int64_t end) {
      const int64_t each = key.m * key.n + key.m * key.k + key.k * key.n;
      in_steps(begin, end, at_once(each, 1), 1, [&](int64_t from, int64_t to) {
        ProductKey part = key;
        part.batch = to - from;
        multiply(part, c.at(from, 0, 0), a.at(from, 0, 0), b.at(from, 0, 0), bias);
      });
    });
  // Pieces of rows or columns of C, whichever there are more of, cut at multiples of a register
  // tile. The operand that all pieces use is widened once.
  const bool by_rows = key.m >= key.n;
  const int64_t extent = by_rows ? key.m : key.n, other = by_rows ? key.n : key.m;
  const Operand shared(by_rows ? b : a, key.in, 1, by_rows ? key.k : key.m,
                       by_rows ? key.n : key.k);
  const int64_t tiles = (extent + kTile - 1) / kTile;
  parallel_for(tiles, grain(depth * kTile * other), [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * kTile, extent);
    in_steps(begin * kTile, last, at_once(key.k + other, kTile), kTile,
             [&](int64_t from, int64_t to) {
               ProductKey part = key;
               (by_rows ? part.m : part.n) = to - from;
               if (by_rows)
                 multiply(part, c.at(0, from, 0), a.at(0, from, 0), *shared, bias);
               else
                 multiply(part, c.at(0, 0, from), *shared, b.at(0, 0, from),
                          bias == nullptr ? nullptr : bias + from);
             });
  });
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
        to_string(out.shape()), to_string(a.shape()), to_string(b.shape()));
  const int64_t batch = rank == 3 ? out.size(0) : 1;
  const int64_t m = a.size(options.trans_a ? -1 : -2), k = a.size(options.trans_a ? -2 : -1);
  const int64_t n = b.size(options.trans_b ? -2 : -1), k_of_b = b.size(options.trans_b ? -1 : -2);
  check(k == k_of_b && out.size(-2) == m && out.size(-1) == n &&
            (rank == 2 || (a.size(0) == batch && b.size(0) == batch)),
        "[kernel.matmul] shapes do not fit; {}{} times {}{} into {}", to_string(a.shape()),
        options.trans_a ? " transposed" : "", to_string(b.shape()),
        options.trans_b ? " transposed" : "", to_string(out.shape()));
  const Widened bias = bias_of("matmul", options.bias, n);
  const Matrix in_a =
                   matrix(a.bytes_data(), a.dtype(), 0, steps(m * k, a.size(-1), options.trans_a)),
               in_b =
                   matrix(b.bytes_data(), b.dtype(), 0, steps(k * n, b.size(-1), options.trans_b));
  run({.batch = batch,
       .m = m,
       .n = n,
       .k = k,
       .accumulate = options.accumulate,
       .bias = bias.data() != nullptr},
      matrix(out.mutable_bytes_data(), out.dtype(), 0, {m * n, n, 1}), in_a, in_b, bias.data());
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
       .accumulate = options.accumulate,
       .bias = bias.data() != nullptr},
      matrix(out_buffer.mutable_bytes_data(), out_buffer.dtype(), out.offset, {0, out.ld, 1}), in_a,
      in_b, bias.data());
}

const Provide provided[] = {
    {kernel::matmul, DeviceType::cpu, matmul},
    {kernel::matmul_strided, DeviceType::cpu, matmul_strided},
};

}  // namespace
}  // namespace lockstep::cpu

#include "core/kernels/matmul.h"

#include "core/kernels/cpu/dnnl_product.h"
#include "core/kernels/cpu/host.h"

namespace lockstep::cpu {
namespace {

using kernel::MatmulOptions;
using kernel::MatrixIn;
using Steps = ProductKey::Steps;

constexpr int64_t kTile = 16;
constexpr double kGrain = 1 << 20;  // multiply-adds worth a thread: some ten microseconds

// Nothing to add up: zeros, or bias, or what is there already.
void empty_product(const ProductKey& key, float* c, const float* bias) {
  for (int64_t batch = 0; batch < key.batch; ++batch)
    for (int64_t i = 0; i < key.m; ++i)
      for (int64_t j = 0; j < key.n; ++j) {
        float& out = c[batch * key.c.batch + i * key.c.row + j];
        out = (key.accumulate ? out : 0.0f) + (bias ? bias[j] : 0.0f);
      }
}

void run(const ProductKey& key, float* c, const float* a, const float* b, const float* bias) {
  if (key.batch == 0 || key.m == 0 || key.n == 0) return;
  if (key.k == 0) return empty_product(key, c, bias);
  const double depth = static_cast<double>(key.k);
  const auto grain = [&](double adds) {
    return std::max<int64_t>(1, static_cast<int64_t>(kGrain / adds));
  };
  if (key.batch > 1)
    return parallel_for(key.batch, grain(depth * key.m * key.n), [&](int64_t begin, int64_t end) {
      ProductKey part = key;
      part.batch = end - begin;
      product(part, c + begin * key.c.batch, a + begin * key.a.batch, b + begin * key.b.batch,
              bias);
    });
  // Pieces of rows or columns of C, whichever there are more of, cut at multiples of a register
  // tile.
  const bool by_rows = key.m >= key.n;
  const int64_t extent = by_rows ? key.m : key.n, other = by_rows ? key.n : key.m;
  const int64_t tiles = (extent + kTile - 1) / kTile;
  parallel_for(tiles, grain(depth * kTile * other), [&](int64_t begin, int64_t end) {
    begin *= kTile;
    end = std::min(end * kTile, extent);
    ProductKey part = key;
    (by_rows ? part.m : part.n) = end - begin;
    product(part, c + begin * (by_rows ? key.c.row : key.c.column),
            a + (by_rows ? begin * key.a.row : 0), b + (by_rows ? 0 : begin * key.b.column),
            bias != nullptr && !by_rows ? bias + begin : bias);
  });
}

// Steps of a stored matrix [rows, columns] as the product sees it.
Steps steps(int64_t batch, int64_t ld, bool transposed) {
  return transposed ? Steps{batch, 1, ld} : Steps{batch, ld, 1};
}

const float* bias_data(const MatmulOptions& options, int64_t n) {
  if (!options.bias.defined()) return nullptr;
  expect_vector("matmul", "bias", options.bias, n);
  return options.bias.data<float>();
}

void matmul(const Tensor& out, const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  expect_f32("matmul", {&out, &a, &b});
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
  const float* bias = bias_data(options, n);
  const float *pa = a.data<float>(), *pb = b.data<float>();
  run({.batch = batch,
       .m = m,
       .n = n,
       .k = k,
       .a = steps(m * k, a.size(-1), options.trans_a),
       .b = steps(k * n, b.size(-1), options.trans_b),
       .c = {m * n, n, 1},
       .accumulate = options.accumulate,
       .bias = bias != nullptr},
      out.mutable_data<float>(), pa, pb, bias);
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
  expect_f32("matmul_strided", {&out_buffer, &a.buffer, &b.buffer});
  expect_inside("out", out_buffer, out);
  expect_inside("a", a.buffer, a);
  expect_inside("b", b.buffer, b);
  const int64_t m = options.trans_a ? a.cols : a.rows, k = options.trans_a ? a.rows : a.cols;
  const int64_t n = options.trans_b ? b.rows : b.cols, k_of_b = options.trans_b ? b.cols : b.rows;
  check(k == k_of_b && out.rows == m && out.cols == n,
        "[kernel.matmul_strided] shapes do not fit; {} x {} times {} x {} into {} x {}", m, k,
        k_of_b, n, out.rows, out.cols);
  const float* bias = bias_data(options, n);
  const float *pa = a.buffer.data<float>() + a.offset, *pb = b.buffer.data<float>() + b.offset;
  run({.batch = 1,
       .m = m,
       .n = n,
       .k = k,
       .a = steps(0, a.ld, options.trans_a),
       .b = steps(0, b.ld, options.trans_b),
       .c = {0, out.ld, 1},
       .accumulate = options.accumulate,
       .bias = bias != nullptr},
      out_buffer.mutable_data<float>() + out.offset, pa, pb, bias);
}

const Provide provided[] = {
    {kernel::matmul, DeviceType::cpu, matmul},
    {kernel::matmul_strided, DeviceType::cpu, matmul_strided},
};

}  // namespace
}  // namespace lockstep::cpu

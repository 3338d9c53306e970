#include "core/kernels/embedding_bag.h"

#include <cstring>

#include "core/kernels/cpu/bag_input.h"
#include "core/kernels/cpu/bag_loops.h"
#include "core/kernels/cpu/coalesce.h"

namespace lockstep::cpu {
namespace {

using namespace kernel;

// Samples whose bags are read table by table: their results stay in the first-level cache while
// every table writes its rows of them, and the rows of one table are fetched during the one before.
constexpr int64_t kSamples = 16;

void embedding_bag(const Tensor& out, const Tensor& tables, const Bags& bags,
                   const TableLayout& layout) {
  constexpr std::string_view kName = "embedding_bag";
  expect_layout(kName, tables, layout);
  expect_dtype(kName, "out", out, DType::f32);
  const int64_t count = layout.tables(), width = tables.size(1);
  check(out.rank() == 3 && out.size(1) >= count && out.size(2) == width,
        "[kernel.{}] out; expected [samples, at least {}, {}], got {}", kName, count, width, out);
  const int64_t samples = out.size(0), stride = out.size(1) * width;
  const CheckedBags in(kName, bags, layout, samples);
  const float* from = tables.data<float>();
  float* to = out.mutable_data<float>() + (out.size(1) - count) * width;
  const auto& loops = LOCKSTEP_PICK_LOOPS(Bag);
  const auto pool = in.mode == BagMode::sum    ? loops.sum
                    : in.mode == BagMode::mean ? loops.mean
                                               : loops.weighted;
  const auto table = [&](int64_t t) { return from + layout.first_row[t] * width; };
  const int64_t cost = std::max(in.count / std::max<int64_t>(samples, 1), count) * (width + 32);
  parallel_for((samples + kSamples - 1) / kSamples, row_grain(cost * kSamples),
               [&](int64_t first, int64_t last) {
                 const int64_t stop = std::min(last * kSamples, samples);
                 for (int64_t b = first * kSamples; b < stop; b += kSamples) {
                   const int64_t end = std::min(b + kSamples, stop);
                   for (int64_t t = 0; t < count; ++t) {
                     // After the last table comes the first, for the samples that follow.
                     const int64_t u = (t + 1) % count, shift = u == 0 ? kSamples : 0;
                     const int64_t next = u * samples + std::min(b + shift, stop),
                                   next_end = u * samples + std::min(end + shift, stop),
                                   bag = t * samples + b;
                     pool({.out = to + b * stride + t * width,
                           .stride = stride,
                           .table = table(t),
                           .rows = in.rows,
                           .offsets = in.offsets == nullptr ? nullptr : in.offsets + bag,
                           .weights = in.weights,
                           .first = bag,
                           .bags = end - b,
                           .width = width,
                           .next_table = table(u),
                           .next = in.begin_of(next),
                           .next_end = in.begin_of(next_end)});
                   }
                 }
               });
}

int64_t coalesce_bags(const Tensor& rows, const Tensor& values, std::span<const BagGradient> bags,
                      const TableLayout& layout) {
  constexpr std::string_view kName = "coalesce_bags";
  expect_dtype(kName, "rows", rows, DType::i64);
  expect_dtype(kName, "values", values, DType::f32);
  check(values.rank() == 2, "[kernel.{}] values; expected [rows, width], got {}", kName, values);
  const Coalescer sums(kName, bags, layout, values.size(1));
  check(rows.numel() >= sums.count() && values.size(0) >= sums.count(),
        "[kernel.{}] rows and values; expected room for {}, got {} and {}", kName, sums.count(),
        rows.numel(), values.size(0));
  int64_t* row = rows.mutable_data<int64_t>();
  float* to = values.mutable_data<float>();
  const int64_t width = values.size(1);
  parallel_for(sums.count(), row_grain(width + 32), [&](int64_t begin, int64_t end) {
    int64_t at = begin;
    sums.over_runs(begin, end, [&](const int64_t* from, int64_t n, const uint32_t* starts) {
      std::copy_n(from, n, row + at);
      sums.sums(to + at * width, starts, n, 0);
      at += n;
    });
  });
  return sums.count();
}

int64_t expect_first(std::string_view kernel, const Tensor& x, const Tensor& rows) {
  expect_dtype(kernel, "x", x, DType::f32);
  expect_dtype(kernel, "rows", rows, DType::f32);
  check(x.rank() == 3 && x.size(1) >= 1, "[kernel.{}] x; expected [samples, rows, width], got {}",
        kernel, x);
  expect_shape(kernel, "rows", rows, {x.size(0), x.size(2)});
  return x.size(2);
}

void copy_rows(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows,
               int64_t width) {
  parallel_for(rows, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * to_stride, from + i * from_stride,
                  static_cast<size_t>(width) * sizeof(float));
  });
}

void put_first(const Tensor& x, const Tensor& rows) {
  const int64_t width = expect_first("put_first", x, rows);
  copy_rows(x.mutable_data<float>(), x.size(1) * width, rows.data<float>(), width, x.size(0),
            width);
}

void take_first(const Tensor& rows, const Tensor& x) {
  const int64_t width = expect_first("take_first", x, rows);
  copy_rows(rows.mutable_data<float>(), width, x.data<float>(), x.size(1) * width, x.size(0),
            width);
}

const Provide provided[] = {
    {kernel::embedding_bag, DeviceType::cpu, embedding_bag},
    {kernel::coalesce_bags, DeviceType::cpu, coalesce_bags},
    {kernel::put_first, DeviceType::cpu, put_first},
    {kernel::take_first, DeviceType::cpu, take_first},
};

}  // namespace
}  // namespace lockstep::cpu

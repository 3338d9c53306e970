#include "core/kernels/embedding.h"

#include <cstring>

#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

// Calls f(const Id* ids) for either integer type.
template <class F>
void with_ids(std::string_view kernel, const Tensor& ids, F f) {
  if (ids.dtype() == DType::i32) return f(ids.data<int32_t>());
  check(ids.dtype() == DType::i64, "[kernel.{}] dtype of ids; expected i32 or i64, got {}", kernel,
        name_of(ids.dtype()));
  f(ids.data<int64_t>());
}

template <class Id>
void expect_ids(std::string_view kernel, const Id* ids, int64_t n, int64_t rows) {
  for (int64_t i = 0; i < n; ++i)
    check(ids[i] >= 0 && ids[i] < rows,
          "[kernel.{}] id at position {}; expected 0 <= id < {} rows, got {}", kernel, i, rows,
          ids[i]);
}

// Rows and width of a table, after a look at the shapes.
int64_t width_of(std::string_view kernel, const Tensor& vectors, const Tensor& table,
                 const Tensor& ids) {
  expect_floats(kernel, {&vectors, &table});
  check(table.rank() == 2, "[kernel.{}] table; expected [rows, width], got {}", kernel,
        table.shape());
  const int64_t width = table.size(1);
  check(vectors.numel() == checked_mul(ids.numel(), width),
        "[kernel.{}] expected {} vectors of {}, got {}", kernel, ids.numel(), width,
        vectors.shape());
  return width;
}

void embedding(const Tensor& out, const Tensor& table, const Tensor& ids) {
  const int64_t width = width_of("embedding", out, table, ids), n = ids.numel();
  with_ids("embedding", ids, [&](const auto* id) {
    expect_ids("embedding", id, n, table.size(0));
    if (out.dtype() == table.dtype()) {
      const auto* from = static_cast<const std::byte*>(table.bytes_data());
      auto* to = static_cast<std::byte*>(out.mutable_bytes_data());
      const int64_t bytes = width * size_of(table.dtype());
      parallel_for(n, row_grain(width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          std::memcpy(to + i * bytes, from + int64_t{id[i]} * bytes, static_cast<size_t>(bytes));
      });
      return;
    }
    const FloatsIn from(table);
    const FloatsOut to(out);
    parallel_for(n, row_grain(width), [&](int64_t begin, int64_t end) {
      Room room;
      for (int64_t i = begin; i < end; ++i)
        in_rooms(true, 0, width, [&](int64_t c, int64_t count) {
          const int64_t at = i * width + c;
          to.write(at, count, from.read(int64_t{id[i]} * width + c, count, to.place(at, room)));
        });
    });
  });
}

// Threads share out the columns, not the rows: additions to an element keep the order of n. A table
// of f16 or bf16 is widened as a whole, so that its rows are rounded once, after all additions.
void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& ids,
                        int64_t padding) {
  constexpr std::string_view kName = "embedding_backward";
  const int64_t width = width_of(kName, dy, dtable, ids), n = ids.numel();
  with_ids(kName, ids, [&](const auto* id) {
    expect_ids(kName, id, n, dtable.size(0));
    const FloatsIn from(dy), before(dtable);
    const Rounded sums(dtable);
    if (before.narrow())
      parallel_for(dtable.numel(), kGrain, [&](int64_t begin, int64_t end) {
        before.read(begin, end - begin, sums.data() + begin);
      });
    const auto& loops = LOCKSTEP_PICK_LOOPS(Elementwise);
    constexpr int64_t kLine = 16;
    parallel_for((width + kLine - 1) / kLine, row_grain(n * kLine),
                 [&](int64_t begin, int64_t end) {
                   const int64_t first = begin * kLine, last = std::min(end * kLine, width);
                   Room room;
                   for (int64_t i = 0; i < n; ++i) {
                     if (id[i] == padding) continue;
                     in_rooms(from.narrow(), first, last, [&](int64_t c, int64_t columns) {
                       float* row = sums.data() + int64_t{id[i]} * width + c;
                       loops.binary(row, row, 1, from.read(i * width + c, columns, room), 1,
                                    columns, BinaryOp::add);
                     });
                   }
                 });
    sums.store();
  });
}

const Provide provided[] = {
    {kernel::embedding, DeviceType::cpu, embedding},
    {kernel::embedding_backward, DeviceType::cpu, embedding_backward},
};

}  // namespace
}  // namespace lockstep::cpu

#include "core/kernels/embedding.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

struct Embedding final : Node {
  Saved ids;
  Shape table;
  int64_t padding = -1;
  std::string_view name() const override { return "embedding"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dtable = gradient_for(0, table, dy[0]);
    kernel::fill(dtable, 0);
    kernel::embedding_backward(dtable, dy[0], ids, padding);
    return {dtable};
  }
};

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids, int64_t padding) {
  check(table.rank() == 2, "[ops.embedding] table; expected [rows, width], got {}", table);
  std::array<int64_t, Shape::kMaxRank> dims;
  const int rank = ids.rank();
  check(rank < Shape::kMaxRank, "[ops.embedding] ids; expected at most {} dimensions, got {}",
        Shape::kMaxRank - 1, rank);
  std::copy(ids.shape().dims().begin(), ids.shape().dims().end(), dims.begin());
  dims[rank] = table.size(1);
  Tensor y = Tensor::empty(Shape(std::span<const int64_t>(dims.data(), rank + 1)), table.dtype(),
                           table.device());
  kernel::embedding(y, table, ids);
  return record<Embedding>(
      y, {table}, [&](Embedding& n) { n.ids = ids, n.table = table.shape(), n.padding = padding; });
}

}  // namespace lockstep::ops

#include "layers/embedding_tables.h"

#include "autograd/leaf.h"
#include "autograd/ops.h"

#include <cmath>

namespace lockstep::layers {

EmbeddingTables::EmbeddingTables(const std::vector<int64_t>& rows, int64_t width,
                                 const EmbeddingTablesOptions& options)
    : mode_(options.mode),
      gradient_(std::make_shared<autograd::TableGradient>(rows, width, options.padding)),
      weight_(Tensor::empty({gradient_->layout().first_row.back(), width})) {
  autograd::require_grad(weight_);
}

EmbeddingTables::EmbeddingTables(Initialiser& init, const std::vector<int64_t>& rows, int64_t width,
                                 const EmbeddingTablesOptions& options)
    : EmbeddingTables(rows, width, options) {
  for (int64_t t = 0; t < tables(); ++t)
    init.uniform(weight_.slice(first_row(t), first_row(t + 1)),
                 1 / std::sqrt(static_cast<double>(rows[static_cast<size_t>(t)])));
}

Tensor EmbeddingTables::operator()(const Tensor& rows, const Tensor& offsets, const Tensor& weights,
                                   const Tensor& first) const {
  return ops::embedding_bag(weight_, gradient_, {rows, offsets, weights, mode_}, first);
}

int64_t EmbeddingTables::first_row(int64_t t) const {
  check(t >= 0 && t <= tables(), "[layers.embedding_tables] table; expected 0 to {}, got {}",
        tables(), t);
  return gradient_->layout().first_row[static_cast<size_t>(t)];
}

}  // namespace lockstep::layers

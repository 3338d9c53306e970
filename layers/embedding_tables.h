#pragma once
#include "autograd/table_gradient.h"
#include "core/state_io.h"
#include "layers/init.h"

#include <memory>
#include <vector>

namespace lockstep::layers {

struct EmbeddingTablesOptions {
  BagMode mode = BagMode::sum;
  int64_t padding = -1;  ///< this row of every table is looked up but never gets a gradient
};

/// T embedding tables of one width in one tensor, looked up by one operation. Not a Module: tables
/// are no dense parameters, so they stay out of FlatParams, and their gradient comes by rows
/// (gradient()), to be stepped by an optim::TableOptimizer.
class EmbeddingTables {
 public:
  /// `rows` of each table, uniform within ±1/√rows. Table t draws from a key of its own, and
  /// element i of it is number i there, whoever holds it.
  EmbeddingTables(Initialiser& init, const std::vector<int64_t>& rows, int64_t width,
                  const EmbeddingTablesOptions& options = {});
  /// Their values are not set: the caller fills weight().
  EmbeddingTables(const std::vector<int64_t>& rows, int64_t width,
                  const EmbeddingTablesOptions& options = {});
  EmbeddingTables(const EmbeddingTables&) = delete;
  EmbeddingTables& operator=(const EmbeddingTables&) = delete;

  /// [B, T, D], or with `first` [B, D] in front of the bags [B, 1 + T, D]; see kernel::Bags for
  /// rows, offsets and weights. UsageError naming table, sample and row for one out of range.
  Tensor operator()(const Tensor& rows, const Tensor& offsets = {}, const Tensor& weights = {},
                    const Tensor& first = {}) const;

  int64_t tables() const { return gradient_->layout().tables(); }
  int64_t width() const { return gradient_->width(); }
  /// The row of weight() that is row 0 of table t; of tables(): the number of rows.
  int64_t first_row(int64_t t) const;
  const Tensor& weight() const { return weight_; }  ///< [Σ rows, D]
  autograd::TableGradient& gradient() const { return *gradient_; }

  void state(StateIo& io) { io.flat("weight", weight_, Fold::replicated); }

 private:
  BagMode mode_;
  std::shared_ptr<autograd::TableGradient> gradient_;
  Tensor weight_;
};

}  // namespace lockstep::layers

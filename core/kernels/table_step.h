#pragma once
#include "core/kernels/embedding_bag.h"

/// Optimiser steps of embedding tables: rows that were looked up are stepped, once each, and no
/// other row or moment of a row is read or written. All f32.
namespace lockstep::kernel {

/// The gradients of rows of the tables: coalesced, or as the bags have them. These are then
/// coalesced a block of rows at a time, each stepped while it is in the cache: the same bits, less
/// memory moved.
struct RowGradients {
  Tensor rows, values;                     ///< as in SparseGrad
  std::span<const BagGradient> bags = {};  ///< used where `rows` is undefined
  TableLayout layout = {};                 ///< of the bags
};

struct RowStep {
  double lr, factor;  ///< `factor` multiplies every gradient as it is read
  /// Decoupled and of the stepped rows only: w ← w·(1 - lr·weight_decay) first, apart from the
  /// gradient and the moments. A row that is not looked up does not decay.
  double weight_decay = 0;
  double eps = 0, beta1 = 0, beta2 = 0;
  int64_t step = 1;  ///< 1 for the first: Adam's bias correction, of all rows alike
};

/// w ← w - lr·g.
/// All steps: UsageError before anything is written unless rows ascend, each once, within the
/// tables [rows, D], and values are [R, D].
inline constinit Kernel<void(const Tensor& tables, const RowGradients&, const RowStep&)> table_sgd{
    "table_sgd"};
/// Adagrad (Duchi et al. 2011): s ← s + g², w ← w - lr·g / (√s + eps); squares [rows, D].
inline constinit Kernel<void(const Tensor& tables, const Tensor& squares, const RowGradients&,
                             const RowStep&)>
    table_adagrad{"table_adagrad"};
/// Adagrad with one sum a row: s ← s + mean over the row of g²; squares [rows].
inline constinit Kernel<void(const Tensor& tables, const Tensor& squares, const RowGradients&,
                             const RowStep&)>
    table_rowwise_adagrad{"table_rowwise_adagrad"};
/// Adam (see adam_step) on the stepped rows; the moments of others keep their values. m, v [rows,
/// D].
inline constinit Kernel<void(const Tensor& tables, const Tensor& m, const Tensor& v,
                             const RowGradients&, const RowStep&)>
    table_adam{"table_adam"};

}  // namespace lockstep::kernel

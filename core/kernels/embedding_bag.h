#pragma once
#include "core/dispatch.h"
#include "core/kernels/bag_mode.h"

#include <span>

/// Lookups in several embedding tables at once, and their gradient by rows: what grows is the
/// number of rows that were looked up, never the tables. Tables, bags and gradients are f32.
namespace lockstep::kernel {

/// What B samples look up in T tables, ordered by table, then sample, then place in the bag.
struct Bags {
  Tensor rows;          ///< i32 or i64 [N], each counted from the first row of its table
  Tensor offsets = {};  ///< i32 or i64 [T·B + 1]: bag (t, b) is rows[offsets[t·B + b]] up to the
                        ///< next offset; undefined: one row each, N = T·B
  Tensor weights = {};  ///< f32 [N] with BagMode::weighted, else undefined; gets no gradient
  BagMode mode = BagMode::sum;
};

/// Where T tables of one width lie in one tensor [Σ rows, D].
struct TableLayout {
  std::span<const int64_t> first_row;  ///< T + 1 numbers: table t is rows [first_row[t],
                                       ///< first_row[t + 1]), fewer than 2^31 of them
  int64_t padding = -1;  ///< this row of every table gets no gradient, though it is looked up like
                         ///< any other; -1: none
  int64_t tables() const { return static_cast<int64_t>(first_row.size()) - 1; }
};

/// out[b, L + t, :] = the bag (t, b) of `tables`, for out [B, L + T, D]; its first L rows of a
/// sample are left alone. Rows of a bag are added in order. UsageError before anything is written
/// for a row outside its table (names table, position in `rows`, sample, row, rows of the table),
/// for offsets that do not begin at 0, decrease or do not end at N, and for shapes that do not fit.
inline constinit Kernel<void(const Tensor& out, const Tensor& tables, const Bags& bags,
                             const TableLayout& layout)>
    embedding_bag{"embedding_bag"};

/// The gradient of one embedding_bag: dy [B, L + T, D].
struct BagGradient {
  Tensor dy;
  Bags bags;
};

/// The gradient of the tables by rows (see SparseGrad): writes the rows that were looked up to
/// `rows` (i64, at least N in all), ascending and each once, the sums of what arrived for them to
/// `values` (f32 [at least N, D]), and returns how many. Additions to a row run in order of the
/// bags, then of the position in them, so the bits depend neither on the threads nor on the
/// instruction set.
/// Errors as in embedding_bag.
inline constinit Kernel<int64_t(const Tensor& rows, const Tensor& values,
                                std::span<const BagGradient> bags, const TableLayout& layout)>
    coalesce_bags{"coalesce_bags"};

/// x[b, 0, :] = rows[b, :] for x [B, S, D], rows [B, D]: what goes before the bags of a sample.
inline constinit Kernel<void(const Tensor& x, const Tensor& rows)> put_first{"put_first"};
/// rows[b, :] = x[b, 0, :].
inline constinit Kernel<void(const Tensor& rows, const Tensor& x)> take_first{"take_first"};

}  // namespace lockstep::kernel

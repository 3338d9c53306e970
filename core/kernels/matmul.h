#pragma once
#include "core/dispatch.h"

namespace lockstep::kernel {

struct MatmulOptions {
  bool trans_a = false;     ///< a is stored [K, M]
  bool trans_b = false;     ///< b is stored [N, K]
  bool accumulate = false;  ///< add to out instead of overwriting it
  Tensor bias;              ///< [N] of any floating dtype, added to every row; undefined for none
  bool relu = false;        ///< what is below 0 then becomes 0
};

/// out[M, N] = a[M, K] · b[K, N] (+ bias) (+ out), relu of that where asked for. 2-D operands, or
/// 3-D ones that share their leading extent: a batch of products. K = 0 gives zeros (or bias, or
/// leaves out as it is when accumulating). Without `accumulate` the old contents of out do not
/// matter, NaN included. a, b and out may be f32, f16 or bf16, each its own: products are exact in
/// f32, sums are f32, and each element is rounded once to the dtype of out. See Note [How bf16 is
/// multiplied] in cpu/dnnl_product.h.
inline constinit Kernel<void(const Tensor& out, const Tensor& a, const Tensor& b,
                             const MatmulOptions&)>
    matmul{"matmul"};

/// A matrix inside a larger buffer: rows of `cols` elements that start `ld` elements apart, the
/// first at `offset`. Stored rows and columns, before any transposition.
struct MatrixIn {
  Tensor buffer;
  int64_t offset = 0, rows = 0, cols = 0, ld = 0;
};
/// The same product on matrices with leading dimensions; what lies between rows is neither read
/// nor written.
inline constinit Kernel<void(const Tensor& out_buffer, const MatrixIn& out, const MatrixIn& a,
                             const MatrixIn& b, const MatmulOptions&)>
    matmul_strided{"matmul_strided"};

}  // namespace lockstep::kernel

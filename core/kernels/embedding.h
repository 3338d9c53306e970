#pragma once
#include "core/dispatch.h"

namespace lockstep::kernel {

/// Table, vectors and their gradients are f32, f16 or bf16, each its own type.

/// out[n, :] = table[ids[n], :]; ids i32 or i64 of any shape with N elements. An id outside
/// [0, rows) is a UsageError naming position, id and rows, before anything is written.
inline constinit Kernel<void(const Tensor& out, const Tensor& table, const Tensor& ids)> embedding{
    "embedding"};
/// dtable[ids[n], :] += dy[n, :]. dtable is added to; additions to a row run in order of n, so the
/// result does not depend on the number of threads; they are f32, and a row of f16 or bf16 is
/// rounded once, after all of them (the table is widened for the call). Rows equal to `padding` are
/// left alone (-1: none).
inline constinit Kernel<void(const Tensor& dtable, const Tensor& dy, const Tensor& ids,
                             int64_t padding)>
    embedding_backward{"embedding_backward"};

}  // namespace lockstep::kernel

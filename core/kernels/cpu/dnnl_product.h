#pragma once
#include <cstdint>

#include "core/dtype.h"

/// Products of bf16 by oneDNN, for processors with units for them: primitives are made once for
/// each ProductKey and thread, and executed with working memory from our allocator, so that any
/// number of threads may multiply at once without a lock. (oneDNN's own process-wide cache shares
/// the generated code between threads.)
namespace lockstep::cpu {

/// C[batch, m, n] (+)= A[batch, m, k] · B[batch, k, n] (+ bias[n]); each matrix by the steps, in
/// elements, from one batch member, row and column to the next.
struct ProductKey {
  struct Steps {
    int64_t batch, row, column;
    friend bool operator==(const Steps&, const Steps&) = default;
  };
  int64_t batch, m, n, k;
  Steps a, b, c;
  bool accumulate, bias;
  DType out;  ///< bf16 or f32; A and B are bf16, the bias f32
  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

/// On the calling thread. All extents at least 1. Throws SystemError(device) with oneDNN's reason.
void product(const ProductKey& key, void* c, const void* a, const void* b, const float* bias);

/// Note [How bf16 is multiplied]
/// A product of two bf16 numbers is exact in f32, so that widening the operands and multiplying in
/// f32 gives what a bf16 unit gives: exact products, f32 sums, one rounding of the result. Which of
/// the two is faster is the processor's affair. AMX multiplies bf16 many times as fast as f32, and
/// AMD's AVX512-BF16 twice as fast: there oneDNN does it. Intel's AVX512-BF16 without AMX took 1.9
/// times as long as f32 at every shape of a transformer (two cores, 2026-11-29: 171 against 330
/// Gflop/s), so there, as on processors without either, our loops widen while they pack
/// (product_loops.cpp), which makes bf16 as fast as f32; so it is for f16, and for f32 itself. The
/// choice depends on the processor and LOCKSTEP_ISA (any other than avx512: widened) only, never on
/// a measurement, so that results repeat. The two differ by the order of their f32 sums, and
/// AVX512-BF16 takes subnormal operands and sums for zero; widened products keep them.
/// LOCKSTEP_BF16=native or widened overrules the choice.
enum class Bf16Products { widened, native };
Bf16Products bf16_products();
/// For tests: whether this processor can multiply bf16 at all, and a switch. Not while kernels run.
bool has_native_bf16();
void use_bf16_products(Bf16Products way);

}  // namespace lockstep::cpu

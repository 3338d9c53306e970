#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

enum class FloatCode { f32, f16, bf16 };

/// A matrix to read. Neighbours of one row or of one column lie beside each other: a step is 1.
struct ProductOperand {
  const void* data;
  FloatCode code;
  int64_t row, column;  ///< from one row to the next and from one column to the next, in elements
};

/// C[m, n] = A[m, k] · B[k, n] (+ C) (+ bias), then ReLU where asked for, on the calling thread; m
/// and n at least 1. The sums of an element are f32 and in an order that depends on k alone; the
/// result is rounded once, to C's code.
struct ProductPart {
  int64_t m, n, k;
  ProductOperand a, b;
  void* c;
  FloatCode c_code;
  int64_t c_row;  ///< from one row of C to the next
  bool accumulate;
  const float* bias;  ///< [n], or null
  bool relu;
  float* room;  ///< room_floats() of them, on a line of its own
};

struct ProductLoops {
  int64_t rows, columns;  ///< multiples of which to cut C at between threads
  int64_t (*room_floats)(const ProductPart&);
  void (*run)(const ProductPart&);
};
LOCKSTEP_DECLARE_LOOPS(Product);

}  // namespace lockstep::cpu

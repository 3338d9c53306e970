#include "layers/embedding.h"

#include "autograd/ops.h"

namespace lockstep::layers {

Embedding::Embedding(Initialiser& init, int64_t rows, int64_t width, const WeightInit& weight) {
  check(rows >= 1 && width >= 1,
        "[layers.embedding] expected at least 1 row of at least 1 element, got {} x {}", rows,
        width);
  const Shape shape{rows, width};
  weight_ = init.weight(shape, matrix_fans(shape, MatrixLayout::in_out),
                        weight);  // an id is a one-hot input
  add_parameter("weight", weight_, Decay::yes);
}

Tensor Embedding::operator()(const Tensor& ids) const { return ops::embedding(weight_, ids); }

}  // namespace lockstep::layers

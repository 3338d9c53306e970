#pragma once
#include "layers/init.h"
#include "layers/module.h"

namespace lockstep::layers {

/// Rows of a table by number: ids [...] (i32 or i64) give [..., width]. Parameter "weight".
class Embedding final : public Module {
 public:
  Embedding(Initialiser& init, int64_t rows, int64_t width,
            const WeightInit& weight = normal(0.02));
  /// UsageError for an id outside [0, rows).
  Tensor operator()(const Tensor& ids) const;
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

}  // namespace lockstep::layers

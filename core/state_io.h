#pragma once
#include <cstdint>
#include <string>

#include "core/tensor.h"

namespace lockstep {

/// How a piece of state behaves when the number of ranks changes.
enum class Fold { replicated, sum_over_ranks, per_rank, resharded };

/// Walks over the state of an object, to save, load or compare it: the object lists its pieces once
/// and the StateIo decides the direction. Loading writes into what is passed.
class StateIo {
 public:
  virtual ~StateIo() = default;
  virtual void flat(const std::string& name, Tensor& value, Fold fold) = 0;
  virtual void value(const std::string& name, int64_t& value, Fold fold) = 0;
  virtual void value(const std::string& name, double& value, Fold fold) = 0;
};

}  // namespace lockstep

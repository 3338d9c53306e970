#pragma once
#include "core/dtype.h"

namespace lockstep::optim {

/// Dtypes of a model's flat buffers: three of the five knobs of mixed precision. (Compute is
/// autograd::Autocast, the wire and what it is summed in are distributed::ExchangeOptions.)
struct Precision {
  DType params = DType::f32;
  /// What each backward's gradient of a parameter is rounded to before it lands.
  DType grads = DType::f32;
  /// Of the gradient buffer, where micro-batches are added: `grads` or f32.
  DType accumulate_in = DType::f32;
};

}  // namespace lockstep::optim

#include "core/dispatch.h"

namespace lockstep {

void expect_shape(std::string_view kernel, std::string_view what, const Tensor& x,
                  const Shape& expected) {
  check(x.shape() == expected, "[kernel.{}] shape of {}; expected {}, got {}", kernel, what,
        expected, x.shape());
}

void expect_dtype(std::string_view kernel, std::string_view what, const Tensor& x, DType expected) {
  check(x.dtype() == expected, "[kernel.{}] dtype of {}; expected {}, got {}", kernel, what,
        name_of(expected), name_of(x.dtype()));
}

}  // namespace lockstep

#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "distributed/exchange.h"
#include "optim/precision.h"
#include "tests/support/precision.h"

namespace lockstep::distributed {

using Floats = std::vector<float>;

using test::floats;
using test::in_dtype;
using test::kFloating;

/// Every wire, both dtypes of sums, every division.
inline std::vector<ExchangeOptions> all_exchanges() {
  std::vector<ExchangeOptions> all;
  for (DType wire : kFloating)
    for (ReduceIn in : {ReduceIn::f32, ReduceIn::wire})
      for (Divide divide :
           {Divide::automatic, Divide::none, Divide::before, Divide::after, Divide::split})
        all.push_back({.wire = wire, .reduce_in = in, .divide = divide});
  return all;
}
/// Every wire and both dtypes of sums, divided as is best: those that differ.
inline std::vector<ExchangeOptions> default_exchanges() {
  return {{},
          {.wire = DType::f16},
          {.wire = DType::f16, .reduce_in = ReduceIn::wire},
          {.wire = DType::bf16},
          {.wire = DType::bf16, .reduce_in = ReduceIn::wire}};
}

/// Parameters and gradients in f32, f16 or bf16.
inline std::vector<optim::Precision> all_precisions() {
  std::vector<optim::Precision> all;
  for (DType dtype : kFloating)
    all.push_back({.params = dtype, .grads = dtype, .accumulate_in = dtype});
  return all;
}

/// "f16_sum_f32_divide_0"
inline std::string describe(const ExchangeOptions& options) {
  return fmt::format("{}_sum_{}_divide_{}", name_of(options.wire),
                     options.reduce_in == ReduceIn::f32 ? "f32" : "wire",
                     static_cast<int>(options.divide));
}

}  // namespace lockstep::distributed

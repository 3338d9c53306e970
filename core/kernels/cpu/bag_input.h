#pragma once
#include "core/kernels/cpu/host.h"
#include "core/kernels/embedding_bag.h"

#include <optional>

namespace lockstep::cpu {

/// UsageError unless `layout` divides `tables` [rows, D], f32.
void expect_layout(std::string_view kernel, const Tensor& tables,
                   const kernel::TableLayout& layout);

/// Bags whose every row and offset has been looked at, as i32: where they lie, or narrowed.
class CheckedBags {
 public:
  CheckedBags(std::string_view kernel, const kernel::Bags& bags, const kernel::TableLayout& layout,
              int64_t samples);

  /// The indices of bags [bag, …): one each without offsets.
  int64_t begin_of(int64_t bag) const { return offsets == nullptr ? bag : offsets[bag]; }

  const int32_t* rows = nullptr;     ///< [count]
  const int32_t* offsets = nullptr;  ///< [T·B + 1]; null: one row a bag
  const float* weights = nullptr;    ///< [count]; null unless weighted
  int64_t count = 0, samples = 0;
  BagMode mode;

 private:
  const int32_t* as_i32(const Tensor& x, std::optional<Scratch<int32_t>>& room);
  std::optional<Scratch<int32_t>> rows_, offsets_;
};

}  // namespace lockstep::cpu

#pragma once
#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace lockstep::distributed {

/// Rows on their way between a rank and a table service, in one tensor, since a call has one each
/// way: f32 values [R, D], then R versions of 4 bytes, then, in pushes, R row numbers of 8, as they
/// are. A version is the number of updates of its row, modulo 2^32.
class RowParcel {
 public:
  enum class Rows { left_out, sent };
  static Tensor room(int64_t count, int64_t width, Rows rows);

  /// UsageError unless `parcel` is as large as room() of such a one.
  RowParcel(const Tensor& parcel, int64_t count, int64_t width, Rows rows);

  Tensor values() const;  ///< [R, D], in place
  void read_versions(std::span<uint32_t> versions) const;
  void write_versions(std::span<const uint32_t> versions) const;
  Tensor rows() const;  ///< i64 [R], a copy
  void write_rows(const Tensor& rows) const;

 private:
  const Tensor& parcel_;
  int64_t count_, width_;
};

}  // namespace lockstep::distributed

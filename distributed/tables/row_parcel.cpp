#include "distributed/tables/row_parcel.h"

#include <cstring>

#include "core/check.h"

namespace lockstep::distributed {
namespace {

int64_t floats_of_row(int64_t width, RowParcel::Rows rows) {
  return width + 1 + (rows == RowParcel::Rows::sent ? 2 : 0);
}

}  // namespace

Tensor RowParcel::room(int64_t count, int64_t width, Rows rows) {
  return Tensor::empty({checked_mul(count, floats_of_row(width, rows))});
}

RowParcel::RowParcel(const Tensor& parcel, int64_t count, int64_t width, Rows rows)
    : parcel_(parcel), count_(count), width_(width) {
  const int64_t expected = checked_mul(count, floats_of_row(width, rows));
  check(parcel.defined() && parcel.dtype() == DType::f32 && parcel.numel() == expected,
        "[tables.parcel] expected {} floats for {} rows of width {}", expected, count, width);
}

Tensor RowParcel::values() const { return parcel_.slice_as_root(0, {count_, width_}); }

void RowParcel::read_versions(std::span<uint32_t> versions) const {
  std::memcpy(versions.data(), parcel_.data<float>() + count_ * width_,
              static_cast<size_t>(count_) * sizeof(uint32_t));
}
void RowParcel::write_versions(std::span<const uint32_t> versions) const {
  std::memcpy(parcel_.mutable_data<float>() + count_ * width_, versions.data(),
              static_cast<size_t>(count_) * sizeof(uint32_t));
}

Tensor RowParcel::rows() const {
  const Tensor rows = Tensor::empty({count_}, DType::i64);
  std::memcpy(rows.mutable_data<int64_t>(), parcel_.data<float>() + count_ * (width_ + 1),
              static_cast<size_t>(count_) * sizeof(int64_t));
  return rows;
}
void RowParcel::write_rows(const Tensor& rows) const {
  std::memcpy(parcel_.mutable_data<float>() + count_ * (width_ + 1), rows.data<int64_t>(),
              static_cast<size_t>(count_) * sizeof(int64_t));
}

}  // namespace lockstep::distributed

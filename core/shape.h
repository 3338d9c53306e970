#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/check.h"

namespace lockstep {

/// The extents of a dense row-major tensor: at most kMaxRank of them, none negative, their product
/// within 64 bits. A rank of 0 is a scalar with one element. Never allocates.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    check(dims.size() <= kMaxRank, "[core.shape] expected at most {} dimensions, got {}", kMaxRank,
          dims.size());
    for (int64_t d : dims) {
      check(d >= 0, "[core.shape] expected extents >= 0, got {}", d);
      dims_[rank_++] = d;
      numel_ = checked_mul(numel_, d);
    }
  }

  int rank() const { return rank_; }
  int64_t numel() const { return numel_; }
  /// Extent of a dimension; negative ones count from the end.
  int64_t operator[](int dim) const {
    const int d = dim < 0 ? dim + rank_ : dim;
    check(d >= 0 && d < rank_, "[core.shape] dimension {} of a shape of rank {}", dim, rank_);
    return dims_[d];
  }
  /// Product of all extents but the last: the rows of a matrix of rows() x last().
  int64_t rows() const { return rank_ == 0 ? 1 : Shape(dims().first(rank_ - 1)).numel(); }
  int64_t last() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  int64_t numel_ = 1;
};

/// "[2, 3]"
std::string to_string(const Shape& shape);

}  // namespace lockstep

/// A shape as an argument of check() costs nothing unless the check fails.
template <>
struct fmt::formatter<lockstep::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const lockstep::Shape& shape,
                                       fmt::format_context& context) const;
};

#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "distributed/tables/row_updates.h"

namespace lockstep::distributed {

/// Note [Races that are meant]
/// Tables, the optimiser's state of their rows and counts of updates in memory that threads read
/// and write at once, without a lock. Every element is read and written by relaxed atomic
/// operations, so that a race is no undefined behaviour: a read gives some value that was written.
/// Nothing more: a row may be read half old and half new, and of two updates made at once one may
/// be lost, which is what Hogwild bargains for. Counts of updates are never lost. No Tensor is
/// touched after construction, since its version is no atomic.
class SharedRows {
 public:
  /// `arrays`: tables [rows, D], and the state of rows [rows, …], all f32.
  explicit SharedRows(const std::vector<Tensor>& arrays);

  /// Copies n-th array's row `row` out of it, and into it.
  void read(size_t n, int64_t row, float* to) const;
  void write(size_t n, int64_t row, const float* from);
  int64_t arrays() const { return static_cast<int64_t>(arrays_.size()); }
  int64_t rows() const { return static_cast<int64_t>(versions_.size()); }
  int64_t row_size(size_t n) const { return arrays_[n].row_size; }

  /// Updates of a row so far, modulo 2^32.
  uint32_t version(int64_t row) const;
  /// Counts an update of a row; returns how many there were before.
  uint32_t count(int64_t row);
  /// What all ranks have added.
  RowUpdates updates() const;
  void add(const RowUpdates& updates);
  /// While nobody else uses it.
  void set_updates(const RowUpdates& updates);
  void set_version(int64_t row, uint32_t version) { versions_[static_cast<size_t>(row)] = version; }

 private:
  struct Array {
    Tensor keeps;
    float* data;
    int64_t row_size;  // floats
  };
  std::vector<Array> arrays_;
  mutable std::vector<uint32_t> versions_;  // read through atomic_ref, which wants it mutable
  std::atomic<int64_t> pushes_{0};
  std::array<std::atomic<int64_t>, RowUpdates::kBins> staleness_{};
};

}  // namespace lockstep::distributed

#include "distributed/tables/shared_rows.h"

#include <algorithm>

namespace lockstep::distributed {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

SharedRows::SharedRows(const std::vector<Tensor>& arrays)
    : versions_(static_cast<size_t>(arrays.front().size(0))) {
  for (const Tensor& x : arrays)
    arrays_.push_back({x, x.mutable_data<float>(), x.rank() == 1 ? 1 : x.size(1)});
}

void SharedRows::read(size_t n, int64_t row, float* to) const {
  const Array& array = arrays_[n];
  float* from = array.data + row * array.row_size;
  for (int64_t i = 0; i < array.row_size; ++i)
    to[i] = std::atomic_ref<float>(from[i]).load(kRelaxed);
}

void SharedRows::write(size_t n, int64_t row, const float* from) {
  const Array& array = arrays_[n];
  float* to = array.data + row * array.row_size;
  for (int64_t i = 0; i < array.row_size; ++i)
    std::atomic_ref<float>(to[i]).store(from[i], kRelaxed);
}

uint32_t SharedRows::version(int64_t row) const {
  return std::atomic_ref<uint32_t>(versions_[static_cast<size_t>(row)]).load(kRelaxed);
}

uint32_t SharedRows::count(int64_t row) {
  return std::atomic_ref<uint32_t>(versions_[static_cast<size_t>(row)]).fetch_add(1, kRelaxed);
}

RowUpdates SharedRows::updates() const {
  RowUpdates updates{.pushes = pushes_.load(kRelaxed)};
  for (size_t t = 0; t < staleness_.size(); ++t)
    updates.staleness[t] = staleness_[t].load(kRelaxed);
  return updates;
}

void SharedRows::add(const RowUpdates& updates) {
  pushes_.fetch_add(updates.pushes, kRelaxed);
  for (size_t t = 0; t < staleness_.size(); ++t)
    if (updates.staleness[t] != 0) staleness_[t].fetch_add(updates.staleness[t], kRelaxed);
}

void SharedRows::set_updates(const RowUpdates& updates) {
  pushes_.store(updates.pushes, kRelaxed);
  for (size_t t = 0; t < staleness_.size(); ++t)
    staleness_[t].store(updates.staleness[t], kRelaxed);
}

}  // namespace lockstep::distributed

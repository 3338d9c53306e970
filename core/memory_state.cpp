#include "core/memory_state.h"

#include "core/check.h"
#include "core/kernels/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

namespace lockstep {

struct MemoryState::Saver final : StateIo {
  explicit Saver(MemoryState& to) : state(to) {}
  void flat(const std::string& name, Tensor& value, Fold) override {
    Tensor copy = empty_like(value);
    kernel::copy(copy, value);
    put(name, copy);
  }
  void value(const std::string& name, int64_t& value, Fold) override { put(name, value); }
  void value(const std::string& name, double& value, Fold) override { put(name, value); }
  template <class T>
  void put(const std::string& name, const T& value) {
    check(state.pieces_.emplace(name, value).second, "[core.state] two pieces are named {}", name);
  }
  MemoryState& state;
};

struct MemoryState::Loader final : StateIo {
  explicit Loader(const MemoryState& from) : state(from) {}
  void flat(const std::string& name, Tensor& value, Fold) override {
    const Tensor& kept = get<Tensor>(name);
    check(kept.shape() == value.shape() && kept.dtype() == value.dtype(),
          "[core.state] {}; expected {}, got {}", name, value, kept);
    kernel::copy(value, kept);
  }
  void value(const std::string& name, int64_t& value, Fold) override { value = get<int64_t>(name); }
  void value(const std::string& name, double& value, Fold) override { value = get<double>(name); }
  template <class T>
  const T& get(const std::string& name) {
    const auto found = state.pieces_.find(name);
    check(found != state.pieces_.end(), "[core.state] {} is missing; there are {}", name,
          fmt::join(state.names(), ", "));
    const T* piece = std::get_if<T>(&found->second);
    check(piece != nullptr, "[core.state] {} is of another kind", name);
    asked.insert(name);
    return *piece;
  }
  const MemoryState& state;
  std::set<std::string> asked;
};

void MemoryState::save(const Walk& walk) {
  pieces_.clear();
  Saver saver(*this);
  walk(saver);
}

void MemoryState::load(const Walk& walk) const {
  Loader loader(*this);
  walk(loader);
  for (const auto& [name, piece] : pieces_)
    check(loader.asked.count(name) == 1, "[core.state] {} was kept but not asked for", name);
}

std::vector<std::string> MemoryState::names() const {
  std::vector<std::string> names;
  for (const auto& [name, piece] : pieces_) names.push_back(name);
  return names;
}

bool operator==(const MemoryState& a, const MemoryState& b) {
  const auto same = [](const auto& x, const auto& y) {
    if (x.first != y.first || x.second.index() != y.second.index()) return false;
    if (const auto* s = std::get_if<Tensor>(&x.second)) {
      const auto& t = std::get<Tensor>(y.second);
      return s->shape() == t.shape() && s->dtype() == t.dtype() &&
             std::memcmp(s->bytes_data(), t.bytes_data(), static_cast<size_t>(s->bytes())) == 0;
    }
    if (const auto* s = std::get_if<double>(&x.second))
      return std::bit_cast<int64_t>(*s) == std::bit_cast<int64_t>(std::get<double>(y.second));
    return std::get<int64_t>(x.second) == std::get<int64_t>(y.second);
  };
  return std::equal(a.pieces_.begin(), a.pieces_.end(), b.pieces_.begin(), b.pieces_.end(), same);
}

}  // namespace lockstep

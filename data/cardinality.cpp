#include "data/cardinality.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::data {
namespace {

constexpr int kRegisterBits = 14;
constexpr int64_t kRegisters = int64_t{1} << kRegisterBits;

}  // namespace

void Cardinality::add(uint64_t hash) {
  if (!exact()) return sketch(hash);
  insert(hash == 0 ? 1 : hash);
  if (size_ <= kExact) return;
  registers_.resize(kRegisters);
  for (const uint64_t old : set_)
    if (old != 0) sketch(old);
  set_ = {};
}

void Cardinality::insert(uint64_t hash) {
  if (2 * (size_ + 1) > std::ssize(set_)) grow();
  const uint64_t mask = set_.size() - 1;
  for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
    if (set_[at] == hash) return;
    if (set_[at] != 0) continue;
    set_[at] = hash;
    ++size_;
    return;
  }
}

void Cardinality::grow() {
  std::vector<uint64_t> old(std::max<size_t>(2 * set_.size(), 64));
  old.swap(set_);
  size_ = 0;
  for (const uint64_t hash : old)
    if (hash != 0) insert(hash);
}

void Cardinality::sketch(uint64_t hash) {
  uint8_t& most = registers_[hash >> (64 - kRegisterBits)];
  const uint64_t rest = hash << kRegisterBits | uint64_t{1} << (kRegisterBits - 1);
  most = std::max(most, static_cast<uint8_t>(std::countl_zero(rest) + 1));
}

void Cardinality::merge(const Cardinality& other) {
  for (const uint64_t hash : other.set_)
    if (hash != 0) add(hash);
  if (other.exact()) return;
  if (exact()) {
    registers_.resize(kRegisters);
    for (const uint64_t hash : set_)
      if (hash != 0) sketch(hash);
    set_ = {};
  }
  for (int64_t i = 0; i < kRegisters; ++i)
    registers_[i] = std::max(registers_[i], other.registers_[i]);
}

int64_t Cardinality::count() const {
  if (exact()) return size_;
  double sum = 0;
  for (const uint8_t most : registers_) sum += std::ldexp(1.0, -most);
  constexpr auto m = static_cast<double>(kRegisters);
  return std::llround(0.7213 / (1 + 1.079 / m) * m * m / sum);
}

}  // namespace lockstep::data

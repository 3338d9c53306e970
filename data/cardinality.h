#pragma once
#include <cstdint>
#include <vector>

namespace lockstep::data {

/// How many distinct values there are, from their 64-bit hashes: exactly up to kExact of them
/// (hashes of a million values meet once in 30 million times), beyond by HyperLogLog (Flajolet et
/// al. 2007) with 2^14 registers, whose standard error is 0.8 %. At most a megabyte. Parts that
/// are merged in any order give the same count.
class Cardinality {
 public:
  static constexpr int64_t kExact = 65536;
  void add(uint64_t hash);
  void merge(const Cardinality& other);
  int64_t count() const;
  bool exact() const { return registers_.empty(); }

 private:
  void insert(uint64_t hash);
  void grow();
  void sketch(uint64_t hash);
  std::vector<uint64_t> set_;  // open addressing, 0 where free, at most half full
  int64_t size_ = 0;
  std::vector<uint8_t> registers_;  // once there are too many for the set
};

}  // namespace lockstep::data

#pragma once
#include <cstdint>

#include "core/allocator.h"
#include "core/device.h"

namespace lockstep {

/// A block of memory on a device; owned, shared by the tensors that view it.
class Storage {
 public:
  Storage(int64_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  std::byte* data_;
  int64_t bytes_;
  Device device_;
};

}  // namespace lockstep

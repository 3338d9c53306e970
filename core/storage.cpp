#include "core/storage.h"

#include "core/check.h"

namespace lockstep {

Storage::Storage(int64_t bytes, Device device) : bytes_(bytes), device_(device) {
  check(device.type == DeviceType::cpu, "[core.storage] this build has no {} memory",
        name_of(device.type));
  data_ = static_cast<std::byte*>(host_allocator().allocate(bytes));
}

Storage::~Storage() { host_allocator().release(data_, bytes_); }

}  // namespace lockstep

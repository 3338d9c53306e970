#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DeviceType : uint8_t { cpu, cuda };
inline constexpr int kDeviceTypes = 2;

constexpr std::string_view name_of(DeviceType t) { return t == DeviceType::cpu ? "cpu" : "cuda"; }

/// A device is a type and an ordinal; the CPU has ordinal 0 only.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;
  friend constexpr bool operator==(Device, Device) = default;
};
inline constexpr Device kCpu{};

}  // namespace lockstep

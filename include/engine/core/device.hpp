#pragma once
#include <cstdint>
#include <string>

namespace engine {

/// `meta` tensors have a shape and no storage; ops on them only account for memory and FLOPs.
enum class DeviceType : std::uint8_t { cpu, cuda, meta };

/// A device by type and ordinal.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_meta() const noexcept { return type == DeviceType::meta; }
  std::string str() const {
    switch (type) {
      case DeviceType::cpu:
        return "cpu";
      case DeviceType::meta:
        return "meta";
      case DeviceType::cuda:
        break;
    }
    return "cuda:" + std::to_string(index);
  }
};

}  // namespace engine

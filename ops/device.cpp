#include "engine/ops/table.hpp"

namespace engine::ops {

std::unique_ptr<DeviceContext> make_device_context(const DeviceContext::Options& options) {
  ENGINE_CHECK(options.device.type != DeviceType::cuda, Errc::invalid_argument,
               "device = \"cuda\": this build has no CUDA backend; use device = \"cpu\"");
  const bool meta = options.device.is_meta();
  return std::make_unique<DeviceContext>(options, meta ? nullptr : &cpu_table());
}

}  // namespace engine::ops

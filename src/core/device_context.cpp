#include "engine/core/device_context.hpp"

namespace engine {

DeviceContext::DeviceContext(const Options& options, const ops::Table* kernels)
    : options_(options),
      arena_(options.arena_bytes),
      pool_(options.device.is_meta() ? 1
                                     : (options.threads > 0 ? options.threads : available_cpus())),
      kernels_(kernels) {
  ENGINE_CHECK(options.threads >= 0, Errc::invalid_argument,
               "thread count: expected 0 (all) or more, got {}", options.threads);
}

Tensor DeviceContext::empty(const Shape& shape, DType dtype, Category category) {
  if (options_.device.is_meta()) return Tensor::meta(shape, dtype, category, memory());
  return Tensor::allocate(arena_, shape, dtype, category);
}

}  // namespace engine

#include "engine/nn/kv_cache.hpp"

#include "engine/ops/elementwise.hpp"

namespace engine::nn {

KvCache::KvCache(DeviceContext& device, std::int64_t layers, std::int64_t batch,
                 std::int64_t capacity, std::int64_t kv_size, DType dtype)
    : device_(&device), capacity_(capacity) {
  for (std::int64_t i = 0; i < layers; ++i) {
    keys_.push_back(device.empty({batch, capacity, kv_size}, dtype, Category::activations));
    values_.push_back(device.empty({batch, capacity, kv_size}, dtype, Category::activations));
  }
}

std::pair<Tensor, Tensor> KvCache::append(std::int64_t layer, const Tensor& k, const Tensor& v) {
  const std::int64_t end = length_ + k.size(1);
  ENGINE_ASSERT(end <= capacity_, "{} positions in a cache of {}", end, capacity_);
  const auto store = [&](Tensor& all, const Tensor& part) {
    ops::copy(*device_, part, all.slice(1, length_, end));
    return all.slice(1, 0, end);
  };
  const auto at = static_cast<std::size_t>(layer);
  return {store(keys_[at], k), store(values_[at], v)};
}

}  // namespace engine::nn

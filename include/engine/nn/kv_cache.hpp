#pragma once
#include <utility>
#include <vector>

#include "engine/core/device_context.hpp"

namespace engine::nn {

/// Keys and values of the positions generated so far, one pair of tensors a layer.
class KvCache {
 public:
  /// Room for `capacity` positions of `batch` sequences in every layer.
  KvCache(DeviceContext& device, std::int64_t layers, std::int64_t batch, std::int64_t capacity,
          std::int64_t kv_size, DType dtype);

  /// Positions already in the cache: the position of the next token.
  std::int64_t length() const noexcept { return length_; }
  std::int64_t capacity() const noexcept { return capacity_; }

  /// Stores k, v [B,T,kv_size] of `layer` behind the `length()` positions before them and returns
  /// all of them, [B, length + T, kv_size]. Throws Errc::internal past the capacity.
  std::pair<Tensor, Tensor> append(std::int64_t layer, const Tensor& k, const Tensor& v);
  /// Counts the positions that every layer has stored.
  void advance(std::int64_t positions) noexcept { length_ += positions; }

 private:
  DeviceContext* device_;
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Tensor> keys_;
  std::vector<Tensor> values_;
};

}  // namespace engine::nn

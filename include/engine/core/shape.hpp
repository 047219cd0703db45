#pragma once
// Shapes and strides of up to six dimensions, held by value.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/core/error.hpp"

namespace engine {

/// Sizes of a tensor's dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims)
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    ENGINE_ASSERT(dims.size() <= kMaxRank, "a shape has at most {} dimensions, got {}", kMaxRank,
                  dims.size());
    for (int i = 0; i < rank_; ++i)
      dims_[static_cast<std::size_t>(i)] = dims[static_cast<std::size_t>(i)];
  }

  int rank() const noexcept { return rank_; }
  /// Size of dimension `i`; negative `i` counts from the end.
  std::int64_t operator[](int i) const { return dims_[index(i)]; }
  std::int64_t& operator[](int i) { return dims_[index(i)]; }
  std::int64_t numel() const noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<std::size_t>(i)];
    return n;
  }
  std::span<const std::int64_t> dims() const noexcept {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }
  void append(std::int64_t size) {
    ENGINE_ASSERT(rank_ < kMaxRank, "a shape has at most {} dimensions", kMaxRank);
    dims_[static_cast<std::size_t>(rank_++)] = size;
  }
  bool operator==(const Shape& other) const noexcept {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i) {
      if (dims_[static_cast<std::size_t>(i)] != other.dims_[static_cast<std::size_t>(i)])
        return false;
    }
    return true;
  }
  /// For example "[4, 256, 768]".
  std::string str() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) {
      text += (i != 0 ? ", " : "") + std::to_string(dims_[static_cast<std::size_t>(i)]);
    }
    return text + "]";
  }

 private:
  std::size_t index(int i) const {
    const int k = i < 0 ? i + rank_ : i;
    ENGINE_ASSERT(k >= 0 && k < rank_, "dimension {} of a shape of rank {}", i, rank_);
    return static_cast<std::size_t>(k);
  }

  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace engine

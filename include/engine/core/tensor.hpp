#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "engine/core/arena.hpp"
#include "engine/core/device.hpp"
#include "engine/core/dtype.hpp"
#include "engine/core/shape.hpp"

namespace engine {

/// Cheap value handle on typed memory: storage, offset, shape and strides. Copying a tensor copies
/// the handle; the storage goes back to its arena with the last handle. A tensor knows nothing of
/// gradients or tapes.
class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised contiguous tensor in `arena`, which must outlive it.
  static Tensor allocate(Arena& arena, const Shape& shape, DType dtype, Category category);
  /// Tensor without storage: shape and dtype only. `meter` counts it like an allocation.
  static Tensor meta(const Shape& shape, DType dtype, Category category, MemoryMeter& meter);
  /// View of memory owned by somebody else, who must outlive it.
  static Tensor borrow(void* data, const Shape& shape, DType dtype, Device device = {});
  /// View of memory kept alive by `owner`.
  static Tensor share(std::shared_ptr<void> owner, void* data, const Shape& shape, DType dtype,
                      Device device = {});

  explicit operator bool() const noexcept { return defined_; }
  DType dtype() const noexcept { return dtype_; }
  Device device() const noexcept { return device_; }
  bool is_meta() const noexcept { return device_.is_meta(); }
  const Shape& shape() const noexcept { return shape_; }
  /// Distance in elements between neighbours along a dimension.
  std::int64_t stride(int dim) const { return strides_[dim]; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t size(int dim) const { return shape_[dim]; }
  std::int64_t numel() const noexcept { return shape_.numel(); }
  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(numel()) * engine::size_of(dtype_);
  }
  /// Row-major without gaps.
  bool contiguous() const noexcept;

  /// First element. Throws Errc::internal on a wrong type or on a meta tensor.
  template <class T>
  T* data() const {
    ENGINE_ASSERT(dtype_of<T> == dtype_, "tensor holds {}, asked for {}", name(dtype_),
                  name(dtype_of<T>));
    return static_cast<T*>(raw());
  }
  /// First byte. Throws Errc::internal on a meta tensor.
  void* raw() const;
  /// All elements of a contiguous tensor.
  template <class T>
  std::span<T> span() const {
    ENGINE_ASSERT(contiguous(), "span of a strided tensor of shape {}", shape_.str());
    return {data<T>(), static_cast<std::size_t>(numel())};
  }

  /// Same elements in another shape. Throws Errc::internal unless contiguous and of equal numel.
  Tensor view(const Shape& shape) const;
  /// Elements [begin, end) along `dim` (negative counts from the end); shares storage.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;
  /// Splits dimension `dim` into two of sizes (size / inner, inner); works on strided tensors.
  Tensor unflatten(int dim, std::int64_t inner) const;

  /// Handles that share this storage, this one included; 0 for an undefined tensor.
  long use_count() const noexcept { return storage_.use_count(); }
  bool shares_storage(const Tensor& other) const noexcept {
    return storage_ != nullptr && storage_ == other.storage_;
  }

 private:
  std::shared_ptr<void> storage_;
  std::byte* data_ = nullptr;
  Shape shape_;
  Shape strides_;
  DType dtype_ = DType::f32;
  Device device_;
  bool defined_ = false;
};

}  // namespace engine

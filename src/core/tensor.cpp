#include "engine/core/tensor.hpp"

namespace engine {
namespace {

Shape row_major(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

/// An arena block that goes back when the last tensor handle is dropped.
struct Block {
  Arena* arena;
  std::byte* data;
  std::size_t bytes;
  Category category;

  Block(Arena& a, std::size_t n, Category c)
      : arena(&a), data(a.allocate(n, c)), bytes(n), category(c) {}
  ~Block() { arena->deallocate(data, bytes, category); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
};

/// What a meta tensor owns: an entry in the meter.
struct MeteredNothing {
  MemoryMeter* meter;
  std::int64_t bytes;
  Category category;

  MeteredNothing(MemoryMeter& m, std::int64_t n, Category c) : meter(&m), bytes(n), category(c) {
    meter->add(category, bytes);
  }
  ~MeteredNothing() { meter->add(category, -bytes); }
  MeteredNothing(const MeteredNothing&) = delete;
  MeteredNothing& operator=(const MeteredNothing&) = delete;
};

}  // namespace

Tensor Tensor::share(std::shared_ptr<void> owner, void* data, const Shape& shape, DType dtype,
                     Device device) {
  Tensor t;
  t.storage_ = std::move(owner);
  t.data_ = static_cast<std::byte*>(data);
  t.shape_ = shape;
  t.strides_ = row_major(shape);
  t.dtype_ = dtype;
  t.device_ = device;
  t.defined_ = true;
  return t;
}

Tensor Tensor::allocate(Arena& arena, const Shape& shape, DType dtype, Category category) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * engine::size_of(dtype);
  auto block = std::make_shared<Block>(arena, bytes, category);
  std::byte* data = block->data;
  return share(std::move(block), data, shape, dtype);
}

Tensor Tensor::meta(const Shape& shape, DType dtype, Category category, MemoryMeter& meter) {
  const std::int64_t bytes = shape.numel() * static_cast<std::int64_t>(engine::size_of(dtype));
  return share(std::make_shared<MeteredNothing>(meter, bytes, category), nullptr, shape, dtype,
               Device{DeviceType::meta, 0});
}

Tensor Tensor::borrow(void* data, const Shape& shape, DType dtype, Device device) {
  return share(nullptr, data, shape, dtype, device);
}

bool Tensor::contiguous() const noexcept {
  std::int64_t expected = 1;
  for (int i = shape_.rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

void* Tensor::raw() const {
  ENGINE_ASSERT(defined_ && !device_.is_meta(), "data of {} tensor of shape {}",
                defined_ ? "a meta" : "an undefined", shape_.str());
  return data_;
}

Tensor Tensor::view(const Shape& shape) const {
  ENGINE_ASSERT(contiguous(), "view of a strided tensor of shape {}", shape_.str());
  ENGINE_ASSERT(shape.numel() == numel(), "view of shape {} as {}", shape_.str(), shape.str());
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = row_major(shape);
  return t;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  ENGINE_ASSERT(0 <= begin && begin <= end && end <= shape_[dim],
                "slice [{}, {}) of dimension {} of shape {}", begin, end, dim, shape_.str());
  Tensor t = *this;
  t.shape_[dim] = end - begin;
  if (t.data_ != nullptr) {
    t.data_ += static_cast<std::size_t>(begin * strides_[dim]) * engine::size_of(dtype_);
  }
  return t;
}

Tensor Tensor::unflatten(int dim, std::int64_t inner) const {
  const int at = dim < 0 ? dim + rank() : dim;
  ENGINE_ASSERT(inner > 0 && shape_[at] % inner == 0, "dimension {} of shape {} split by {}", dim,
                shape_.str(), inner);
  Tensor t = *this;
  t.shape_ = {};
  t.strides_ = {};
  for (int i = 0; i < rank(); ++i) {
    if (i == at) {
      t.shape_.append(shape_[i] / inner);
      t.strides_.append(strides_[i] * inner);
      t.shape_.append(inner);
    } else {
      t.shape_.append(shape_[i]);
    }
    t.strides_.append(strides_[i]);
  }
  return t;
}

}  // namespace engine

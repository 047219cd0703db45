#pragma once
// What the kernels share: cutting work, workspace, dispatch on the element type, dropout masks.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"
#include "ops/cpu/isa/isa.hpp"

ENGINE_ISA_BEGIN

using Index = std::int64_t;

/// Elements per task of elementwise work.
inline constexpr Index kElementGrain = 16384;

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

/// Rows per task when a row has `row_numel` elements.
constexpr Index row_grain(Index row_numel) {
  return std::max<Index>(1, kElementGrain / std::max<Index>(1, row_numel));
}

/// Runs f(begin, end) over [0, n) in chunks of `grain`, in parallel.
template <class F>
void for_chunks(DeviceContext& device, Index n, Index grain, const F& f) {
  device.pool().parallel_for(ceil_div(n, grain), [&](std::int64_t i) {
    f(Index{i} * grain, std::min(n, (Index{i} + 1) * grain));
  });
}

/// Uninitialised f32 memory that goes back at the end of its scope.
class Workspace {
 public:
  Workspace(DeviceContext& device, Index numel)
      : tensor_(Tensor::allocate(device.arena(), Shape{std::max<Index>(1, numel)}, DType::f32,
                                 Category::workspace)),
        next_(tensor_.data<float>()) {}
  /// The next `numel` elements.
  float* take(Index numel) {
    float* const taken = next_;
    next_ += numel;
    return taken;
  }

 private:
  Tensor tensor_;
  float* next_;
};

/// Calls f(T{}) with the C++ type of a float tensor.
template <class F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::bf16) {
    f(bf16{});
  } else {
    f(float{});
  }
}

/// y[i] = x[i] in y's type.
template <class X, class Y>
void convert(const X* x, Index n, Y* y) {
  for (Index i = 0; i < n; ++i) y[i] = static_cast<Y>(static_cast<float>(x[i]));
}

/// Folds the rows of `partial` [chunks, n] into `out`, in order.
inline void reduce_chunks(DeviceContext& device, const float* partial, Index chunks, Index n,
                          Index stride, float* out, Write write) {
  for_chunks(device, n, 256, [&](Index begin, Index end) {
    for (Index c = 0; c < chunks; ++c) {
      const float* const from = partial + c * stride;
      if (c == 0 && write == Write::overwrite) {
        for (Index i = begin; i < end; ++i) out[i] = from[i];
      } else {
        for (Index i = begin; i < end; ++i) out[i] += from[i];
      }
    }
  });
}

/// How rows are cut for column sums: about 64 chunks of 16 rows or more.
struct RowChunks {
  Index rows;   ///< rows per chunk
  Index count;  ///< chunks, at least one
};
inline RowChunks row_chunks(Index rows) {
  const Index size = std::max<Index>(16, ceil_div(rows, 64));
  return {size, std::max<Index>(1, ceil_div(rows, size))};
}

/// Multipliers of dropout for the elements [first, first + n) of a sample: 0 or 1 / (1 - rate).
void dropout_mask(const Dropout& dropout, Index sample, Index first, Index n, float* mask);

ENGINE_ISA_END

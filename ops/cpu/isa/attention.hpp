#pragma once
// Tiles of attention, shared by its forward and backward pass.
#include <type_traits>

#include "ops/cpu/gemm.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN

inline constexpr Index kQueryTile = 64;
inline constexpr Index kKeyTile = 128;

/// The rows of one head of one sample.
template <class T>
struct HeadRows {
  T* data;
  Index stride;
};
template <class T>
HeadRows<T> head_rows(const Tensor& x, Index b, Index h) {
  return {x.data<std::remove_const_t<T>>() + b * x.stride(0) + h * x.stride(2),
          std::max(x.stride(1), x.size(3))};
}

/// f32 rows, in place or converted.
struct Rows {
  const float* data;
  Index stride;

  Operand operand(Trans trans = Trans::no) const { return {data, stride, trans}; }
  Operand from(Index row, Trans trans = Trans::no) const {
    return {data + row * stride, stride, trans};
  }
};

/// Rows [first, first + n) as f32; bf16 rows are converted into `buffer`.
template <class T>
Rows rows_as_f32(HeadRows<const T> x, Index first, Index n, Index depth, float* buffer) {
  const T* const from = x.data + first * x.stride;
  if constexpr (std::is_same_v<T, float>) {
    return {from, x.stride};
  } else {
    for (Index r = 0; r < n; ++r) convert(from + r * x.stride, depth, buffer + r * depth);
    return {buffer, depth};
  }
}

ENGINE_ISA_END

#pragma once
// Single-threaded matrix products of oneDNN, and how a product is cut into tiles.
#include <cstdint>

#include "engine/core/dtype.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops::cpu {

/// A row-major matrix, possibly to be read transposed.
struct Operand {
  const void* data;
  std::int64_t stride;  ///< elements between stored rows
  Trans trans = Trans::no;
};

/// c [m,n] = alpha op(a) [m,k] op(b) [k,n] + beta c, all f32. With beta 0, c may be uninitialised.
/// Runs in the calling thread.
void sgemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b,
           float beta, float* c, std::int64_t c_stride);

/// An optional bias: data null, or n elements.
struct Bias {
  const void* data = nullptr;
  DType dtype = DType::f32;
};

/// c = op(a) op(b) + bias (+ c) by oneDNN's matmul primitive, which has bf16 operands with f32
/// sums. a and b are of type `in`, c of type `out`. k > 0. Runs in the calling thread.
void primitive_matmul(std::int64_t m, std::int64_t n, std::int64_t k, DType in, Operand a,
                      Operand b, DType out, void* c, std::int64_t c_stride, Write write, Bias bias);

/// Whether this machine multiplies bf16 natively, so that `primitive_matmul` beats converting.
bool native_bf16();

/// How many tiles a product is cut into, and their size (the last ones may be smaller).
struct Tiling {
  std::int64_t rows;     ///< rows of c per tile
  std::int64_t columns;  ///< columns of c per tile
  std::int64_t tiles_m;
  std::int64_t tiles_n;
};

/// Tiles for c [m,n] with sums over k: a pure function of the shape. Few and large, but enough for
/// about 16 threads.
Tiling tile_matmul(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace engine::ops::cpu

#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// y = a + b. Shapes equal, contiguous; `y` may be `a` or `b`. Types: all equal, or y f32 and a f32
/// with b bf16 (adding a bf16 gradient to an f32 accumulator).
void add(DeviceContext& device, const Tensor& a, const Tensor& b, const Tensor& y);

/// y = x in y's type (f32, bf16), or a copy; x and y may be strided with a contiguous last
/// dimension.
void copy(DeviceContext& device, const Tensor& x, const Tensor& y);

/// Sets every element of a contiguous f32 or bf16 tensor.
void fill(DeviceContext& device, const Tensor& x, float value);

/// y = dropout(x). Shapes: x, y [B,...] contiguous; element numbering is within a batch row.
/// Backward is the same call on dy. `y` may be `x`.
void dropout(DeviceContext& device, const Tensor& x, const Dropout& dropout, const Tensor& y);

/// sum[n] = sum over rows of x[r,n] (the gradient of a bias), rows in order within fixed chunks.
/// Shapes: x [R,N] f32 or bf16, sum [N] f32.
void sum_rows(DeviceContext& device, const Tensor& x, const Tensor& sum, Write write);

/// Sum of all elements, in double and in a fixed order. x contiguous f32. Waits for the result.
double sum(DeviceContext& device, const Tensor& x);

/// Sum of squares of all elements, in double and in a fixed order. x contiguous f32. Waits.
double sum_of_squares(DeviceContext& device, const Tensor& x);

}  // namespace engine::ops

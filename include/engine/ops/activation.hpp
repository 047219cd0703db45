#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Shapes: x, y equal, contiguous.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
void gelu(DeviceContext& device, const Tensor& x, const Tensor& y);

/// dx = dy * gelu'(x). `dx` may be `dy`.
void gelu_backward(DeviceContext& device, const Tensor& x, const Tensor& dy, const Tensor& dx);

/// y = gate * sigmoid(gate) * up. Shapes equal, contiguous.
/// Source: Shazeer, "GLU Variants Improve Transformer", 2020.
void swiglu(DeviceContext& device, const Tensor& gate, const Tensor& up, const Tensor& y);

/// Gradients of `swiglu`.
void swiglu_backward(DeviceContext& device, const Tensor& gate, const Tensor& up, const Tensor& dy,
                     const Tensor& dgate, const Tensor& dup);

}  // namespace engine::ops

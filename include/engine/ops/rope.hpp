#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// Rotary positions, rotate-half pairs (i, i + D/2): angle = position * theta^(-2i/D), computed in
/// double. `inverse` turns back, which is the gradient. `y` may be `x`.
/// Shapes: x, y [B,T,H,D], D even; [H,D] contiguous, rows may be strided. Row t has position
/// first_position + t.
/// Source: Su et al., "RoFormer", 2021; layout as in Hugging Face Llama.
void rope(DeviceContext& device, const Tensor& x, double theta, std::int64_t first_position,
          bool inverse, const Tensor& y);

}  // namespace engine::ops

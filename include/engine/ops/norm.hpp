#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// y = (x - mean) * rstd * weight + bias over the last dimension.
/// Shapes: x, y [...,C]; weight, bias [C] of x's type; mean, rstd [rows] f32 are written.
void layer_norm(DeviceContext& device, const Tensor& x, const Tensor& weight, const Tensor& bias,
                double eps, const Tensor& y, const Tensor& mean, const Tensor& rstd);

/// Gradients of `layer_norm`. `dx` may accumulate; dweight, dbias [C] are f32.
void layer_norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const Tensor& dx, Write write_dx, const Tensor& dweight,
                         const Tensor& dbias, Write write_parameters);

/// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps), over the last dimension.
/// Shapes: x, y [...,C]; weight [C] of x's type; rstd [rows] f32 is written.
/// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
void rms_norm(DeviceContext& device, const Tensor& x, const Tensor& weight, double eps,
              const Tensor& y, const Tensor& rstd);

/// Gradients of `rms_norm`. `dx` may accumulate; dweight [C] is f32.
void rms_norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, const Tensor& dx, Write write_dx,
                       const Tensor& dweight, Write write_parameters);

}  // namespace engine::ops

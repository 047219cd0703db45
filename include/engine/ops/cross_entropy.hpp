#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// Per-row losses log(sum exp(logits)) - logits[target]; rows with target < 0 give 0.
/// Shapes: logits [R,V] f32 or bf16, targets [R] i32, loss [R] f32.
void cross_entropy(DeviceContext& device, const Tensor& logits, const Tensor& targets,
                   const Tensor& loss);

/// The same, and replaces logits by their gradient grad_scale * (softmax - onehot(target)), zero in
/// rows with target < 0.
void cross_entropy_with_gradient(DeviceContext& device, const Tensor& logits, const Tensor& targets,
                                 double grad_scale, const Tensor& loss);

}  // namespace engine::ops

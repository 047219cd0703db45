#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// out[b,t] = table[tokens[b,t]] + positions[first_position + t].
/// Shapes: tokens [B,T] i32, table [V,C], positions [P,C] or undefined, out [B,T,C].
/// Token ids are not checked here: data floors do.
void embedding(DeviceContext& device, const Tensor& tokens, const Tensor& table,
               const Tensor& positions, std::int64_t first_position, const Tensor& out);

/// Gradient of the table: each row is the sum of dy over its tokens, in token order.
/// Shapes: tokens [B,T] i32, dy [B,T,C], dtable [V,C] f32.
void embedding_backward(DeviceContext& device, const Tensor& tokens, const Tensor& dy,
                        const Tensor& dtable, Write write);

/// Gradient of the positions: dpositions[t] = sum over the batch of dy[b,t], rows past T zero.
/// Shapes: dy [B,T,C], dpositions [P,C] f32 with P >= T.
void position_embedding_backward(DeviceContext& device, const Tensor& dy, const Tensor& dpositions,
                                 Write write);

}  // namespace engine::ops

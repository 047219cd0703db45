#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// c = op(a) op(b) + bias, or c += op(a) op(b) with `Write::accumulate`.
/// Shapes: op(a) [M,K], op(b) [K,N], c [M,N], bias [N]; rows may be strided, columns not.
/// Types: a and b both f32 with c f32, or both bf16 with c bf16 or f32; bias of c's or b's type, or
/// f32. Sums are f32 in a fixed order: results do not depend on the thread count.
/// Throws Errc::internal on mismatched shapes or types.
void matmul(DeviceContext& device, const Tensor& a, Trans trans_a, const Tensor& b, Trans trans_b,
            const Tensor& c, Write write = Write::overwrite, const Tensor& bias = {});

}  // namespace engine::ops

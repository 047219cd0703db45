#pragma once
#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::ops {

/// Causal attention with grouped KV heads: query head h reads KV head h / (H/K). Query t sees keys
/// up to t + (S - T), so with S > T the queries are the last T positions of S.
/// Shapes: q, out [B,T,H,D]; k, v [B,S,K,D], S >= T, H % K == 0; [heads,D] contiguous, rows may be
/// strided; log_sum_exp [B,H,T] f32 is written. f32 or bf16, sums in f32. Tiled: no T x S matrix of
/// a head is kept. Dropout, if active, falls on the probabilities: element (h*T + t)*S + s of a
/// sample. Source: Dao et al., "FlashAttention", 2022 (online softmax).
void attention(DeviceContext& device, const Tensor& q, const Tensor& k, const Tensor& v,
               double scale, const Dropout& dropout, const Tensor& out, const Tensor& log_sum_exp);

/// Gradients of `attention` (S == T); dq, dk, dv are overwritten and may be strided like q, k, v.
void attention_backward(DeviceContext& device, const Tensor& dout, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& log_sum_exp, double scale,
                        const Dropout& dropout, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv);

}  // namespace engine::ops

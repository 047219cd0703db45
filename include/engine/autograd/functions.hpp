#pragma once
// The differentiable functions that blocks are made of. Each allocates its output in the activation
// category, records what its backward needs, and keeps parameters by address.
#include <optional>
#include <utility>

#include "engine/autograd/parameter.hpp"
#include "engine/autograd/tape.hpp"

namespace engine::autograd {

/// How a linear layer stores its weight.
enum class WeightLayout : std::uint8_t {
  in_out,  ///< [in, out], as GPT-2's Conv1D
  out_in,  ///< [out, in], as torch.nn.Linear
};

/// y = x W + b. Shapes: x [...,in], y [...,out], bias [out] or none. The weight gradient is the
/// weight part of backward; the bias gradient comes with the input gradient.
Value linear(Tape& tape, const Value& x, Parameter& weight, Parameter* bias, WeightLayout layout);

/// Token embedding plus optional learned positions. Shapes: tokens [B,T] i32, result [B,T,C].
Value embedding(Tape& tape, const Tensor& tokens, Parameter& table, Parameter* positions,
                std::int64_t first_position = 0);

/// LayerNorm over the last dimension.
Value layer_norm(Tape& tape, const Value& x, Parameter& weight, Parameter& bias, double eps);

/// RMSNorm over the last dimension.
Value rms_norm(Tape& tape, const Value& x, Parameter& weight, double eps);

/// GELU, tanh form.
Value gelu(Tape& tape, const Value& x);

/// silu(gate) * up.
Value swiglu(Tape& tape, const Value& gate, const Value& up);

/// a + b, shapes equal.
Value add(Tape& tape, const Value& a, const Value& b);

/// Dropout whose mask depends only on seed, place and sample; nothing at rate 0.
Value dropout(Tape& tape, const Value& x, const ops::Dropout& dropout);

/// Rotary positions on [B,T,H*D], heads of size `head_dim`.
Value rope(Tape& tape, const Value& x, std::int64_t head_dim, double theta,
           std::int64_t first_position = 0);

/// Head counts and sizes of an attention.
struct AttentionShape {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
};

/// Causal attention. Shapes: q [B,T,H*D]; k, v [B,S,K*D]; result [B,T,H*D]. Scale 1/sqrt(D).
/// Backward needs S == T.
Value attention(Tape& tape, const Value& q, const Value& k, const Value& v,
                const AttentionShape& shape, const ops::Dropout& dropout);

/// Causal attention on a fused projection [B,T,(H+2K)*D] = [q|k|v].
Value attention_qkv(Tape& tape, const Value& qkv, const AttentionShape& shape,
                    const ops::Dropout& dropout);

/// Output head with loss: logits = x W^T, summed cross-entropy over targets >= 0, in row chunks so
/// that the logits of a batch never exist. Shapes: x [B,T,C], weight [V,C], targets [B,T] i32.
/// When recording, the input gradient (times `grad_scale`) is seeded and the weight gradient is
/// written during this call. Returns the loss sum. Waits for it.
double softmax_cross_entropy_head(Tape& tape, const Value& x, Parameter& weight,
                                  const Tensor& targets, double grad_scale);

/// logits = x W^T in the compute type, not recorded. Shapes: x [B,T,C], weight [V,C].
Tensor logits(Tape& tape, const Value& x, Parameter& weight);

}  // namespace engine::autograd

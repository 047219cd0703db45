#pragma once
#include "engine/nn/block.hpp"
#include "engine/nn/model_config.hpp"

namespace engine::nn {

/// The boundary entries of the language models.
inline constexpr std::string_view kHidden = "hidden";  ///< [B,T,C] between blocks
inline constexpr std::string_view kLogits = "logits";  ///< [B,T,V] after the head, generation only

/// GPT-2 as blocks: embedding, `layers` transformer blocks, head with loss. Parameter names, shapes
/// and layouts are Hugging Face's ("transformer.h.0.attn.c_attn.weight" is [C,3C]).
/// Initial values: normal(0, 0.02), residual projections divided by sqrt(2 L), biases 0, norms 1.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
Model make_gpt2(const ModelConfig& config);

/// Llama as blocks, likewise ("model.layers.0.self_attn.q_proj.weight" is [H*D,C]).
/// Source: Touvron et al., "LLaMA", 2023; grouped KV heads as in Llama 2.
Model make_llama(const ModelConfig& config);

/// The family that `config` names, after `config.validate()`.
Model make_model(const ModelConfig& config);

}  // namespace engine::nn

#include "engine/checkpoint/hugging_face.hpp"

namespace engine::checkpoint {

namespace {

void add_gpt2(const nn::ModelConfig& c, std::vector<HfTensor>& tensors) {
  const std::int64_t hidden = c.hidden_size;
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + ".weight", {hidden}});
    tensors.push_back({name + ".bias", {hidden}});
  };
  const auto conv1d = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    tensors.push_back({name + ".weight", {in, out}});
    tensors.push_back({name + ".bias", {out}});
  };
  tensors.push_back({"transformer.wte.weight", {c.vocab_size, hidden}});
  tensors.push_back({"transformer.wpe.weight", {c.context_length, hidden}});
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string block = fmt::format("transformer.h.{}.", layer);
    norm(block + "ln_1");
    conv1d(block + "attn.c_attn", hidden, 3 * hidden);
    conv1d(block + "attn.c_proj", hidden, hidden);
    norm(block + "ln_2");
    conv1d(block + "mlp.c_fc", hidden, c.ffn_size);
    conv1d(block + "mlp.c_proj", c.ffn_size, hidden);
  }
  norm("transformer.ln_f");
}

void add_llama(const nn::ModelConfig& c, std::vector<HfTensor>& tensors) {
  const std::int64_t hidden = c.hidden_size;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    tensors.push_back({name + ".weight", {out, in}});
  };
  linear("model.embed_tokens", c.vocab_size, hidden);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string block = fmt::format("model.layers.{}.", layer);
    tensors.push_back({block + "input_layernorm.weight", {hidden}});
    linear(block + "self_attn.q_proj", c.heads * c.head_dim, hidden);
    linear(block + "self_attn.k_proj", c.kv_heads * c.head_dim, hidden);
    linear(block + "self_attn.v_proj", c.kv_heads * c.head_dim, hidden);
    linear(block + "self_attn.o_proj", hidden, c.heads * c.head_dim);
    tensors.push_back({block + "post_attention_layernorm.weight", {hidden}});
    linear(block + "mlp.gate_proj", c.ffn_size, hidden);
    linear(block + "mlp.up_proj", c.ffn_size, hidden);
    linear(block + "mlp.down_proj", hidden, c.ffn_size);
  }
  tensors.push_back({"model.norm.weight", {hidden}});
}

}  // namespace

std::vector<HfTensor> expected_tensors(const nn::ModelConfig& config) {
  std::vector<HfTensor> tensors;
  if (config.family == nn::Family::gpt2) {
    add_gpt2(config, tensors);
  } else {
    add_llama(config, tensors);
  }
  if (!config.tie_embeddings) {
    tensors.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  return tensors;
}

}  // namespace engine::checkpoint

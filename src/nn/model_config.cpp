#include "engine/nn/model_config.hpp"

namespace engine::nn {

void ModelConfig::validate() const {
  const auto positive = [](std::string_view key, std::int64_t value) {
    ENGINE_CHECK(value >= 1, Errc::invalid_argument, "model.{} = {}: expected 1 or more", key,
                 value);
  };
  positive("vocab_size", vocab_size);
  positive("context_length", context_length);
  positive("layers", layers);
  positive("hidden_size", hidden_size);
  positive("heads", heads);
  positive("kv_heads", kv_heads);
  positive("head_dim", head_dim);
  positive("ffn_size", ffn_size);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  for (const std::int64_t value :
       {vocab_size, context_length, layers, hidden_size, heads, kv_heads, head_dim, ffn_size}) {
    ENGINE_CHECK(value < kMost, Errc::invalid_argument,
                 "model sizes must be below 2^31, got {}: check the [model] table", value);
  }
  ENGINE_CHECK(family != Family::gpt2 || heads * head_dim == hidden_size, Errc::invalid_argument,
               "model.heads = {} does not divide model.hidden_size = {}{}: GPT-2 needs heads * "
               "head_dim = hidden_size",
               heads, hidden_size,
               hidden_size % heads == 0 ? fmt::format(" into heads of {}", head_dim) : "");
  ENGINE_CHECK(
      heads % kv_heads == 0, Errc::invalid_argument,
      "model.kv_heads = {} does not divide model.heads = {}: every KV head serves the same "
      "number of query heads",
      kv_heads, heads);
  ENGINE_CHECK(
      family != Family::gpt2 || kv_heads == heads, Errc::invalid_argument,
      "model.kv_heads = {} with family = \"gpt2\": GPT-2 has as many KV heads as heads ({}); "
      "leave the key out",
      kv_heads, heads);
  ENGINE_CHECK(family != Family::llama || head_dim % 2 == 0, Errc::invalid_argument,
               "model.head_dim = {}: rotary positions need an even head size", head_dim);
  ENGINE_CHECK(norm_eps > 0 && norm_eps < 1, Errc::invalid_argument,
               "model.norm_eps = {}: expected a small positive number such as 1e-5", norm_eps);
  ENGINE_CHECK(rope_theta > 0, Errc::invalid_argument,
               "model.rope_theta = {}: expected a positive number such as 10000.0", rope_theta);
  ENGINE_CHECK(dropout >= 0 && dropout < 1, Errc::invalid_argument,
               "model.dropout = {}: expected 0 <= dropout < 1", dropout);
}

}  // namespace engine::nn

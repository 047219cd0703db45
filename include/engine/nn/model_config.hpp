#pragma once
#include <cstdint>
#include <string_view>

#include "engine/core/error.hpp"

namespace engine::nn {

enum class Family : std::uint8_t { gpt2, llama };

constexpr std::string_view name(Family family) noexcept {
  return family == Family::gpt2 ? "gpt2" : "llama";
}

/// Shape of a model; the same terms as the `[model]` table of a config.
struct ModelConfig {
  Family family = Family::gpt2;
  std::int64_t vocab_size = 50257;
  std::int64_t context_length = 1024;
  std::int64_t layers = 12;
  std::int64_t hidden_size = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 12;
  std::int64_t head_dim = 64;
  std::int64_t ffn_size = 3072;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tie_embeddings = true;
  double dropout = 0.0;

  bool operator==(const ModelConfig&) const = default;

  /// Throws Errc::invalid_argument naming the key, its value and what would be right.
  void validate() const;
};

}  // namespace engine::nn

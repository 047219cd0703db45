#include <nlohmann/json.hpp>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/core/error.hpp"
#include "src/core/json.hpp"

namespace engine::checkpoint {

namespace {

using engine::detail::Json;

std::int64_t size(const Json& value) { return value.integer(1, (std::int64_t{1} << 31) - 1); }

std::int64_t size_or(const Json& config, std::string_view key, std::int64_t fallback) {
  const auto value = config.find(key);
  return value ? size(*value) : fallback;
}

double number_or(const Json& config, std::string_view key, double fallback) {
  const auto value = config.find(key);
  return value ? value->number() : fallback;
}

bool boolean_or(const Json& config, std::string_view key, bool fallback) {
  const auto value = config.find(key);
  return value ? value->boolean() : fallback;
}

[[noreturn]] void unsupported(const Json& value, std::string_view supported) {
  ENGINE_FAIL(Errc::invalid_argument, "{} = {} is not supported: expected {}", value.where(),
              value.text(), supported);
}

void require_boolean(const Json& config, std::string_view key, bool wanted) {
  const auto value = config.find(key);
  if (value && value->boolean() != wanted) unsupported(*value, wanted ? "true" : "false");
}

void require_string(const Json& config, std::string_view key, std::string_view wanted) {
  const auto value = config.find(key);
  if (value && value->string() != wanted) unsupported(*value, wanted);
}

void require_absent(const Json& config, std::string_view key) {
  const auto value = config.find(key);
  if (value) unsupported(*value, "null or no such key");
}

nn::ModelConfig parse_gpt2(const Json& json) {
  require_string(json, "activation_function", "gelu_new");
  require_boolean(json, "scale_attn_weights", true);
  require_boolean(json, "scale_attn_by_inverse_layer_idx", false);
  require_boolean(json, "add_cross_attention", false);
  nn::ModelConfig config;
  config.family = nn::Family::gpt2;
  config.vocab_size = size(json.at("vocab_size"));
  config.context_length = size(json.at("n_positions"));
  config.layers = size(json.at("n_layer"));
  config.hidden_size = size(json.at("n_embd"));
  config.heads = size(json.at("n_head"));
  config.kv_heads = config.heads;
  config.head_dim = config.hidden_size / config.heads;
  config.ffn_size = size_or(json, "n_inner", 4 * config.hidden_size);
  config.norm_eps = number_or(json, "layer_norm_epsilon", 1e-5);
  config.tie_embeddings = boolean_or(json, "tie_word_embeddings", true);
  return config;
}

double parse_rope_theta(const Json& json) {
  const auto parameters = json.find("rope_parameters");  // where transformers 5 keeps it
  if (!parameters) return number_or(json, "rope_theta", 10000.0);
  require_string(*parameters, "rope_type", "default");
  return parameters->at("rope_theta").number();
}

nn::ModelConfig parse_llama(const Json& json) {
  require_string(json, "hidden_act", "silu");
  require_absent(json, "rope_scaling");
  require_absent(json, "sliding_window");
  require_boolean(json, "attention_bias", false);
  require_boolean(json, "mlp_bias", false);
  if (const auto factor = json.find("partial_rotary_factor"); factor && factor->number() != 1.0) {
    unsupported(*factor, "1");
  }
  nn::ModelConfig config;
  config.family = nn::Family::llama;
  config.vocab_size = size(json.at("vocab_size"));
  config.context_length = size(json.at("max_position_embeddings"));
  config.layers = size(json.at("num_hidden_layers"));
  config.hidden_size = size(json.at("hidden_size"));
  config.heads = size(json.at("num_attention_heads"));
  // Transformers' defaults for a missing key differ: as many as heads for Llama, 8 for Mistral.
  config.kv_heads = json.at("model_type").string() == "mistral"
                        ? size(json.at("num_key_value_heads"))
                        : size_or(json, "num_key_value_heads", config.heads);
  const auto head_dim = json.find("head_dim");
  ENGINE_CHECK(head_dim || config.hidden_size % config.heads == 0, Errc::corrupt_data,
               "{}: num_attention_heads = {} does not divide hidden_size = {}",
               json.at("num_attention_heads").where(), config.heads, config.hidden_size);
  config.head_dim = head_dim ? size(*head_dim) : config.hidden_size / config.heads;
  config.ffn_size = size(json.at("intermediate_size"));
  config.norm_eps = number_or(json, "rms_norm_eps", 1e-6);
  config.rope_theta = parse_rope_theta(json);
  config.tie_embeddings = boolean_or(json, "tie_word_embeddings", false);
  return config;
}

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      break;
  }
  ENGINE_FAIL(Errc::internal, "weights cannot be written as {}", name(dtype));
}

}  // namespace

nn::ModelConfig parse_hugging_face_config(std::string_view text,
                                          const std::filesystem::path& path) {
  const Json json = Json::parse(text, path.string());
  require_absent(json, "quantization_config");
  const Json type = json.at("model_type");
  nn::ModelConfig config;
  if (type.string() == "gpt2") {
    config = parse_gpt2(json);
  } else if (type.string() == "llama" || type.string() == "mistral") {
    config = parse_llama(json);
  } else {
    unsupported(type, "gpt2, llama or mistral");
  }
  try {
    config.validate();
  } catch (const Error& error) {
    ENGINE_FAIL(Errc::corrupt_data, "{}: impossible shape: {}", path.string(), error.what());
  }
  return config;
}

std::string hugging_face_config(const nn::ModelConfig& config, DType dtype,
                                std::optional<std::int64_t> end_of_text) {
  nlohmann::ordered_json json;
  if (config.family == nn::Family::gpt2) {
    json["architectures"] = {"GPT2LMHeadModel"};
    json["model_type"] = "gpt2";
    json["vocab_size"] = config.vocab_size;
    json["n_positions"] = config.context_length;
    json["n_ctx"] = config.context_length;
    json["n_embd"] = config.hidden_size;
    json["n_layer"] = config.layers;
    json["n_head"] = config.heads;
    json["n_inner"] = config.ffn_size;
    json["activation_function"] = "gelu_new";
    json["layer_norm_epsilon"] = config.norm_eps;
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = config.dropout;
  } else {
    json["architectures"] = {"LlamaForCausalLM"};
    json["model_type"] = "llama";
    json["vocab_size"] = config.vocab_size;
    json["max_position_embeddings"] = config.context_length;
    json["hidden_size"] = config.hidden_size;
    json["intermediate_size"] = config.ffn_size;
    json["num_hidden_layers"] = config.layers;
    json["num_attention_heads"] = config.heads;
    json["num_key_value_heads"] = config.kv_heads;
    json["head_dim"] = config.head_dim;
    json["hidden_act"] = "silu";
    json["rms_norm_eps"] = config.norm_eps;
    json["rope_theta"] = config.rope_theta;
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  }
  json["tie_word_embeddings"] = config.tie_embeddings;
  if (end_of_text) {
    json["bos_token_id"] = *end_of_text;
    json["eos_token_id"] = *end_of_text;
  }
  json["torch_dtype"] = torch_name(dtype);
  return json.dump(2) + "\n";
}

}  // namespace engine::checkpoint

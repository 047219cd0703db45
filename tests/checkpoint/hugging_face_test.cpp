#include "engine/checkpoint/hugging_face.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <set>

#include "tests/checkpoint/support.hpp"

namespace engine::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path golden(std::string_view name) { return fs::path(ENGINE_TEST_DIR) / "golden" / name; }

nn::ModelConfig tiny(nn::Family family, bool tie = true) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = 7;
  config.context_length = 5;
  config.layers = 2;
  config.hidden_size = 8;
  config.heads = 2;
  config.kv_heads = family == nn::Family::gpt2 ? 2 : 1;
  config.head_dim = 4;
  config.ffn_size = 12;
  config.tie_embeddings = tie;
  return config;
}

/// Values that differ between tensors and elements.
std::vector<float> values_of(const HfTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  std::size_t seed = std::hash<std::string>{}(tensor.name) % 1000;
  for (float& value : values) value = 0.001F * static_cast<float>(seed++);
  return values;
}

/// Stored name and values of the tensors of a file to be written for a test.
using Tensors = std::vector<std::pair<HfTensor, std::vector<float>>>;

Tensors tensors_of(const nn::ModelConfig& config) {
  Tensors tensors;
  for (const HfTensor& tensor : expected_tensors(config)) {
    tensors.emplace_back(tensor, values_of(tensor));
  }
  return tensors;
}

void write_weights(const fs::path& path, const Tensors& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const auto& [tensor, values] : tensors) {
    declared.push_back({tensor.name, DType::f32, tensor.shape});
  }
  SafetensorsWriter writer(path, declared);
  for (const auto& [tensor, values] : tensors) writer.append_f32(tensor.name, values);
  writer.commit();
}

void write_model(const TemporaryDirectory& scratch, const nn::ModelConfig& config,
                 const Tensors& tensors) {
  scratch.write("config.json", hugging_face_config(config, DType::f32));
  write_weights(scratch / "model.safetensors", tensors);
}

void expect_values(const HfModel& model) {
  for (const HfTensor& tensor : model.tensors()) {
    const std::vector<float> expected = values_of(tensor);
    std::vector<float> read(expected.size());
    model.read(tensor.name, read);
    EXPECT_EQ(read, expected) << tensor.name;
  }
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class GoldenModels : public testing::TestWithParam<const char*> {};

TEST_P(GoldenModels, ImportThenExportGivesTheSameTensors) {
  const TemporaryDirectory scratch;
  const HfModel model = HfModel::open(golden(GetParam()));
  std::vector<float> values;
  save_hugging_face(scratch / "out", model.config(),
                    [&](const HfTensor& tensor) -> std::span<const float> {
                      values.resize(static_cast<std::size_t>(tensor.shape.numel()));
                      model.read(tensor.name, values);
                      return values;
                    });
  const SafetensorsFile before = SafetensorsFile::open(golden(GetParam()) / "model.safetensors");
  const SafetensorsFile after = SafetensorsFile::open(scratch / "out/model.safetensors");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const StoredTensor& tensor : before.tensors()) {
    EXPECT_EQ(after.at(tensor.name).shape, tensor.shape);
    EXPECT_EQ(after.at(tensor.name).dtype, tensor.dtype);
    const auto a = before.data(tensor.name);
    const auto b = after.data(tensor.name);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << tensor.name;
  }
  EXPECT_EQ(HfModel::open(scratch / "out").config(), model.config());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModels,
                         testing::Values("gpt2_tiny", "gpt2_masked", "llama_tiny"),
                         [](const auto& test) { return std::string(test.param); });

TEST(HfModel, ReadsTheShapeOfTheGoldenModels) {
  const HfModel gpt2 = HfModel::open(golden("gpt2_tiny"));
  EXPECT_EQ(gpt2.config().family, nn::Family::gpt2);
  EXPECT_EQ(gpt2.config().layers, 4);
  EXPECT_EQ(gpt2.config().head_dim, 12);
  EXPECT_TRUE(gpt2.config().tie_embeddings);
  const HfModel llama = HfModel::open(golden("llama_tiny"));
  EXPECT_EQ(llama.config().family, nn::Family::llama);
  EXPECT_EQ(llama.config().kv_heads, 2);
  EXPECT_EQ(llama.config().head_dim, 16);
  EXPECT_FALSE(llama.config().tie_embeddings);
}

TEST(HfModel, RoundTripsInEveryType) {
  for (const auto family : {nn::Family::gpt2, nn::Family::llama}) {
    for (const bool tie : {true, false}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const TemporaryDirectory scratch;
        const nn::ModelConfig config = tiny(family, tie);
        std::vector<float> values;
        save_hugging_face(
            scratch.path(), config,
            [&](const HfTensor& tensor) -> std::span<const float> {
              return values = values_of(tensor);
            },
            dtype, 6);
        const HfModel model = HfModel::open(scratch.path());
        EXPECT_EQ(model.config(), config);
        for (const HfTensor& tensor : model.tensors()) {
          std::vector<float> read(static_cast<std::size_t>(tensor.shape.numel()));
          model.read(tensor.name, read);
          const std::vector<float> expected = values_of(tensor);
          for (std::size_t i = 0; i < read.size(); ++i) {
            const float value = expected[i];
            ASSERT_EQ(read[i], dtype == DType::f32    ? value
                               : dtype == DType::bf16 ? static_cast<float>(bf16(value))
                                                      : static_cast<float>(f16(value)));
          }
        }
        const std::string text = read_file(scratch / "config.json");
        EXPECT_NE(text.find("\"eos_token_id\": 6"), std::string::npos);
        EXPECT_EQ(scratch.entries(), 2);
      }
    }
  }
}

TEST(HfModel, TakesNamesWithoutPrefixAndSkipsBuffers) {
  for (const auto family : {nn::Family::gpt2, nn::Family::llama}) {
    for (const std::string_view compiled : {"", "_orig_mod."}) {
      const TemporaryDirectory scratch;
      const nn::ModelConfig config = tiny(family);
      Tensors tensors = tensors_of(config);
      for (auto& [tensor, values] : tensors) {
        tensor.name = std::string(compiled) + tensor.name.substr(tensor.name.find('.') + 1);
      }
      tensors.push_back({{"h.0.attn.bias", {1, 1, 5, 5}}, std::vector<float>(25)});
      tensors.push_back({{"transformer.h.1.attn.masked_bias", {}}, std::vector<float>(1)});
      tensors.push_back({{"model.layers.0.self_attn.rotary_emb.inv_freq", {2}}, {1, 2}});
      write_model(scratch, config, tensors);
      const HfModel model = HfModel::open(scratch.path());
      EXPECT_EQ(model.config(), config);
      expect_values(model);
    }
  }
}

TEST(HfModel, HeadDecidesWhetherEmbeddingsAreTied) {
  for (const auto family : {nn::Family::gpt2, nn::Family::llama}) {
    for (const bool config_says : {true, false}) {
      const auto open = [&](const Tensors& tensors) {
        const TemporaryDirectory scratch;
        write_model(scratch, tiny(family, config_says), tensors);
        return HfModel::open(scratch.path());
      };
      const Tensors without = tensors_of(tiny(family, true));
      EXPECT_TRUE(open(without).config().tie_embeddings);

      Tensors equal = without;
      equal.push_back({{"lm_head.weight", {7, 8}}, without[0].second});
      const HfModel tied = open(equal);
      EXPECT_TRUE(tied.config().tie_embeddings);
      EXPECT_EQ(tied.tensors().size(), without.size());

      const HfModel untied = open(tensors_of(tiny(family, false)));
      EXPECT_FALSE(untied.config().tie_embeddings);
      expect_values(untied);
    }
  }
}

/// Two shards and an index; returns the index text.
std::string write_sharded(const TemporaryDirectory& scratch, const nn::ModelConfig& config) {
  const Tensors all = tensors_of(config);
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  const Tensors first(all.begin(), all.begin() + half);
  const Tensors second(all.begin() + half, all.end());
  scratch.write("config.json", hugging_face_config(config, DType::f32));
  std::string map;
  for (const auto& [file, part] : {std::pair{"model-00001-of-00002.safetensors", first},
                                   {"model-00002-of-00002.safetensors", second}}) {
    write_weights(scratch / file, part);
    for (const auto& [tensor, values] : part) {
      map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ",\n ", tensor.name, file);
    }
  }
  std::string index =
      fmt::format(R"({{"metadata": {{"total_size": 1}}, "weight_map": {{{}}}}})", map);
  scratch.write("model.safetensors.index.json", index);
  return index;
}

TEST(HfModel, ReadsShards) {
  const TemporaryDirectory scratch;
  write_sharded(scratch, tiny(nn::Family::llama, false));
  expect_values(HfModel::open(scratch.path()));
}

TEST(HfModel, RefusesIndexesThatDoNotMatchTheirShards) {
  const TemporaryDirectory scratch;
  const std::string index = write_sharded(scratch, tiny(nn::Family::gpt2));
  const std::string name = "model.safetensors.index.json";
  const auto refuse = [&](std::string_view from, std::string_view to, Errc code,
                          std::initializer_list<std::string_view> parts) {
    scratch.write(name, replaced(index, from, to));
    expect_error(code, parts, [&] { HfModel::open(scratch.path()); });
  };
  const std::string entry = R"("transformer.wte.weight": "model-00001-of-00002.safetensors")";
  const auto with_file = [&](std::string_view file) {
    return fmt::format("\"transformer.wte.weight\": {}", file);
  };
  for (const std::string_view file :
       {R"("../model-00001-of-00002.safetensors")", R"("/etc/passwd")", R"("a\\b")", R"("..")",
        R"(".")", R"("")", R"("a\u0000b")"}) {
    refuse(entry, with_file(file), Errc::corrupt_data, {name, "wte.weight", "same directory"});
  }
  refuse(entry, with_file("3"), Errc::corrupt_data, {name, "a string"});
  refuse(entry, with_file(R"("missing.safetensors")"), Errc::io, {"missing.safetensors"});
  refuse(entry, with_file(R"("model-00002-of-00002.safetensors")"), Errc::corrupt_data,
         {"wte.weight", "model-0000"});
  refuse(entry, entry + R"(, "lm_head.weight": "model-00002-of-00002.safetensors")",
         Errc::corrupt_data, {"lm_head.weight", "model-00002-of-00002.safetensors"});
  refuse(entry + ",", "", Errc::corrupt_data, {"wte.weight", "does not put there"});
  refuse(entry, entry + "," + entry, Errc::corrupt_data, {"wte.weight", "twice"});
  refuse("weight_map", "weights", Errc::corrupt_data, {name, "weight_map", "missing"});
  scratch.write(name, R"({"weight_map": {}})");
  expect_error(Errc::corrupt_data, {"empty"}, [&] { HfModel::open(scratch.path()); });
}

TEST(HfModel, RefusesMissingExtraMisshapenAndMistypedTensors) {
  const nn::ModelConfig config = tiny(nn::Family::gpt2);
  const auto refuse = [&](const Tensors& tensors, std::initializer_list<std::string_view> parts) {
    const TemporaryDirectory scratch;
    write_model(scratch, config, tensors);
    expect_error(Errc::corrupt_data, parts, [&] { HfModel::open(scratch.path()); });
  };
  Tensors tensors = tensors_of(config);
  tensors.pop_back();
  refuse(tensors, {"transformer.ln_f.bias", "[8]", "missing"});
  tensors = tensors_of(config);
  tensors.push_back({{"transformer.h.2.ln_1.bias", {8}}, std::vector<float>(8)});
  refuse(tensors, {"model.safetensors", "transformer.h.2.ln_1.bias"});
  tensors = tensors_of(config);
  tensors.push_back({{"wpe.weight", {5, 8}}, std::vector<float>(40)});
  refuse(tensors, {"wpe.weight", "same parameter"});
  tensors = tensors_of(config);
  tensors[0].first.shape = {8, 7};
  refuse(tensors, {"wte.weight", "[7, 8]", "[8, 7]"});
  refuse({tensors[0]}, {"2 layers", "1 tensors"});

  const TemporaryDirectory scratch;
  scratch.write("config.json", hugging_face_config(config, DType::f32));
  std::vector<TensorDeclaration> declared;
  for (const HfTensor& tensor : expected_tensors(config)) {
    declared.push_back({tensor.name, DType::i32, tensor.shape});
  }
  SafetensorsWriter writer(scratch / "model.safetensors", declared);
  for (const auto& [tensor, values] : tensors_of(config)) {
    writer.append(tensor.name, std::as_bytes(std::span(values)));
  }
  writer.commit();
  expect_error(Errc::corrupt_data, {"wte.weight", "I32"}, [&] { HfModel::open(scratch.path()); });
}

TEST(HfModel, NamesMissingFiles) {
  const TemporaryDirectory scratch;
  expect_error(Errc::io, {"config.json", "No such file"}, [&] { HfModel::open(scratch.path()); });
  scratch.write("config.json", hugging_face_config(tiny(nn::Family::gpt2), DType::f32));
  expect_error(Errc::io, {"model.safetensors"}, [&] { HfModel::open(scratch.path()); });
  scratch.write("pytorch_model.bin", "");
  expect_error(Errc::io, {"pytorch_model.bin", "safetensors"},
               [&] { HfModel::open(scratch.path()); });
}

TEST(HfConfig, FillsInDefaults) {
  const nn::ModelConfig gpt2 = parse_hugging_face_config(
      R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":768,"n_layer":12,
          "n_head":12,"n_inner":null,"resid_pdrop":0.1,"torch_dtype":"bfloat16"})",
      "c");
  EXPECT_EQ(gpt2, nn::ModelConfig{});
  const nn::ModelConfig llama = parse_hugging_face_config(
      R"({"model_type":"llama","vocab_size":10,"max_position_embeddings":16,"hidden_size":32,
          "intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,
          "rope_scaling":null,"rope_parameters":{"rope_type":"default","rope_theta":5e5}})",
      "c");
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 5e5);
  EXPECT_FALSE(llama.tie_embeddings);
}

TEST(HfConfig, RefusesWhatTheEngineDoesNotHaveByName) {
  const std::string gpt2 = hugging_face_config(tiny(nn::Family::gpt2), DType::f32);
  const std::string llama = hugging_face_config(tiny(nn::Family::llama), DType::f32);
  const auto refuse = [](const std::string& base, std::string_view member,
                         std::initializer_list<std::string_view> parts, Errc code) {
    // A member that is there already is replaced, as duplicates are an error of their own.
    std::string text = base;
    const std::string key(member.substr(0, member.find(':') + 1));
    if (const std::size_t at = text.find(key); at != std::string::npos) {
      text.erase(at, text.find_first_of(",\n", at) + 1 - at);
    }
    text = replaced(text, "{", fmt::format("{{{},", member));
    expect_error(code, parts, [&] { parse_hugging_face_config(text, "dir/config.json"); });
    expect_error(code, {"dir/config.json"},
                 [&] { parse_hugging_face_config(text, "dir/config.json"); });
  };
  const Errc user = Errc::invalid_argument;
  refuse(gpt2, R"("model_type":"opt")", {"model_type", "opt"}, user);
  refuse(gpt2, R"("activation_function":"relu")", {"activation_function", "relu", "gelu_new"},
         user);
  refuse(gpt2, R"("scale_attn_weights":false)", {"scale_attn_weights"}, user);
  refuse(gpt2, R"("scale_attn_by_inverse_layer_idx":true)", {"scale_attn_by_inverse"}, user);
  refuse(gpt2, R"("add_cross_attention":true)", {"add_cross_attention"}, user);
  refuse(gpt2, R"("quantization_config":{})", {"quantization_config"}, user);
  refuse(llama, R"("hidden_act":"gelu")", {"hidden_act", "silu"}, user);
  refuse(llama, R"("rope_scaling":{"type":"linear"})", {"rope_scaling"}, user);
  refuse(llama, R"("rope_parameters":{"rope_type":"llama3","rope_theta":1})",
         {"rope_parameters.rope_type", "llama3"}, user);
  refuse(llama, R"("attention_bias":true)", {"attention_bias"}, user);
  refuse(llama, R"("mlp_bias":true)", {"mlp_bias"}, user);
  refuse(llama, R"("sliding_window":4096)", {"sliding_window", "4096"}, user);
  refuse(llama, R"("partial_rotary_factor":0.5)", {"partial_rotary_factor"}, user);

  const Errc corrupt = Errc::corrupt_data;
  refuse(gpt2, R"("n_embd":0)", {"n_embd", "0"}, corrupt);
  refuse(gpt2, R"("n_embd":8.0)", {"n_embd"}, corrupt);
  refuse(gpt2, R"("n_layer":"2")", {"n_layer", "whole number"}, corrupt);
  refuse(gpt2, R"("n_layer":4294967296)", {"n_layer"}, corrupt);
  refuse(gpt2, R"("n_layer":18446744073709551615)", {"n_layer"}, corrupt);
  refuse(gpt2, R"("n_head":3)", {"heads"}, corrupt);
  refuse(gpt2, R"("n_head":null)", {"n_head", "missing"}, corrupt);
  refuse(gpt2, R"("layer_norm_epsilon":-1)", {"norm_eps"}, corrupt);
  refuse(gpt2, R"("tie_word_embeddings":1)", {"tie_word_embeddings"}, corrupt);
  refuse(llama, R"("num_key_value_heads":3)", {"kv_heads"}, corrupt);
  refuse(llama, R"("head_dim":5)", {"head_dim"}, corrupt);
  expect_error(corrupt, {"twice", "n_head"},
               [&] { parse_hugging_face_config(replaced(gpt2, "{", "{\"n_head\":2,"), "c"); });
  expect_error(corrupt, {"JSON"}, [] { parse_hugging_face_config("", "c"); });
  expect_error(corrupt, {"JSON"}, [] { parse_hugging_face_config("{\"a\"", "c"); });
  expect_error(corrupt, {"object"}, [] { parse_hugging_face_config("[1]", "c"); });
  expect_error(corrupt, {"deep"}, [] { parse_hugging_face_config(std::string(100000, '['), "c"); });
}

TEST(HfSave, LeavesNothingWhenTheDiskIsFull) {
  const TemporaryDirectory scratch;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t room : {rlim_t{10}, rlim_t{4000}}) {
    const rlimit small = {room, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    Errc code = Errc::internal;
    try {
      std::vector<float> values;
      save_hugging_face(scratch / "out", tiny(nn::Family::gpt2),
                        [&](const HfTensor& tensor) -> std::span<const float> {
                          return values = values_of(tensor);
                        });
    } catch (const Error& error) {
      code = error.code();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(code, Errc::io);
    EXPECT_EQ(scratch.entries(), 0);
  }
}

}  // namespace
}  // namespace engine::checkpoint

#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/safetensors.hpp"
#include "engine/core/dtype.hpp"
#include "engine/core/function_ref.hpp"
#include "engine/core/shape.hpp"
#include "engine/nn/model_config.hpp"

namespace engine::checkpoint {

/// A parameter under its Hugging Face name, which is the engine's canonical name too.
struct HfTensor {
  std::string name;
  Shape shape;
};

/// All parameters of a model in model order, in Hugging Face layout: GPT-2's Conv1D weights are
/// [in, out], Llama's weights [out, in]. `lm_head.weight` only if embeddings are not tied.
std::vector<HfTensor> expected_tensors(const nn::ModelConfig& config);

/// Reads the text of a `config.json`: GPT-2, Llama and Mistral (without sliding window). Dropout is
/// a choice of the run and not of the weights: it is read as 0. `path` is for messages.
/// Throws Errc::invalid_argument naming a setting that the engine does not have,
/// Errc::corrupt_data for missing or impossible values.
nn::ModelConfig parse_hugging_face_config(std::string_view json, const std::filesystem::path& path);

/// The `config.json` of a model. `end_of_text`: written as bos and eos token id.
std::string hugging_face_config(const nn::ModelConfig& config, DType dtype,
                                std::optional<std::int64_t> end_of_text = {});

/// A Hugging Face model directory: config.json with model.safetensors, or with shards and
/// model.safetensors.index.json. GPT-2 names may lack `transformer.`, Llama names `model.`;
/// `_orig_mod.` is dropped, buffers (causal masks, rotary frequencies) are skipped.
/// A head that is missing or equal to the embedding is tied, a different one is not, whatever
/// `tie_word_embeddings` says.
class HfModel {
 public:
  /// Opens and checks: every parameter present with its shape, nothing else.
  /// Throws Errc::io for missing files, Errc::corrupt_data for damaged or contradicting ones,
  /// Errc::invalid_argument for models that the engine does not have.
  static HfModel open(const std::filesystem::path& directory);

  const nn::ModelConfig& config() const noexcept { return config_; }
  const std::vector<HfTensor>& tensors() const noexcept { return tensors_; }
  /// Reads elements [first, first + out.size()) of a parameter, by canonical name.
  /// Throws Errc::corrupt_data for a type that is no float, Errc::internal for unknown names.
  void read(std::string_view name, std::span<float> out, std::int64_t first = 0) const;

 private:
  struct Place {
    std::size_t file = 0;
    std::string name;  ///< in the file
  };

  void open_files(const std::filesystem::path& directory);
  void add_names(std::size_t file);
  void settle_head();
  void check_tensors(const std::filesystem::path& directory);
  const StoredTensor& stored(const Place& place) const;

  nn::ModelConfig config_;
  std::vector<HfTensor> tensors_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;  ///< by canonical name
};

/// Writes `config.json` and `model.safetensors` (dtype f32, bf16 or f16) into `directory`, which is
/// made if need be. `values` gives the parameters of `expected_tensors(config)` one at a time; its
/// span must live until the next call. The weights come first: a directory with a config is whole.
/// Throws Errc::io, and then leaves nothing new behind.
void save_hugging_face(const std::filesystem::path& directory, const nn::ModelConfig& config,
                       FunctionRef<std::span<const float>(const HfTensor&)> values,
                       DType dtype = DType::f32, std::optional<std::int64_t> end_of_text = {});

}  // namespace engine::checkpoint

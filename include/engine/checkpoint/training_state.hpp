#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/model_config.hpp"
#include "engine/parallel/unit.hpp"

namespace engine::checkpoint {

/// A small file by name and contents.
struct TextFile {
  std::string name;
  std::string contents;
};

/// The regular files of a folder; none if there is no such folder. Throws Errc::io.
std::vector<TextFile> read_folder(const std::filesystem::path& folder);

/// What a training state holds beside tensors.
struct RunInfo {
  std::int64_t step = 0;              ///< steps done, skipped ones included
  std::int64_t consumed_samples = 0;  ///< the only cursor into the data
  std::int64_t tokens = 0;            ///< consumed so far
  std::int64_t optimizer_steps = 0;   ///< steps that were not skipped
  std::int64_t seed = 0;
  std::string optimizer;                 ///< name of the update rule
  std::string config;                    ///< the resolved config as TOML; may be empty
  std::optional<nn::ModelConfig> model;  ///< written as config.json; none for an embedder's model
  std::vector<TextFile> tokenizer;       ///< the files of tokenizer/; may be empty
};

/// Writes the new directory `directory`: manifest.json (counters and a checksum of every file),
/// model.safetensors (f32 master weights), optimizer.safetensors (moments, "<parameter>/<moment>"),
/// and, for the engine's own model families, config.json, which makes it a Hugging Face directory
/// too. Everything goes to a temporary name, is flushed and renamed: the directory is whole or
/// absent. Collective: every rank calls it; shards are gathered a unit at a time over `shards`, and
/// the rank with `writes` writes. Throws Errc::io; Errc::invalid_argument if it exists already.
void save_training_state(const std::filesystem::path& directory, const RunInfo& info,
                         std::span<const parallel::Unit> units,
                         const std::vector<std::string>& moment_names, comm::Communicator& shards,
                         bool writes);

/// Reads and checks the manifest and the checksums of the files it names.
/// Throws Errc::io or Errc::corrupt_data.
RunInfo read_run_info(const std::filesystem::path& directory);

/// Reads weights and, if the units train, moments, by parameter name: of each what lies in the
/// unit's state. Every parameter must be there with its shape, and nothing else. The caller tells
/// the units that their masters changed. Throws Errc::corrupt_data naming file and tensor.
void load_training_state(const std::filesystem::path& directory, std::span<parallel::Unit> units,
                         const std::vector<std::string>& moment_names);

/// Checkpoint directories "step-N" under `root`, oldest first; temporaries and others are left out.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& root);

/// Name of the checkpoint after `step` steps: "step-00000100".
std::string checkpoint_name(std::int64_t step);

}  // namespace engine::checkpoint

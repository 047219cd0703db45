#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace engine::data {

/// What `prepare` says of the token files in a directory: the part of meta.json that training
/// needs.
struct DataMeta {
  std::string tokenizer;  ///< name, for example "gpt2"
  std::string identity;   ///< hash of the tokenizer's files
  std::int64_t vocab_size = 0;
  std::string format;       ///< "raw_u16" or "raw_u32"
  std::int64_t tokens = 0;  ///< in the token file that was asked for
  std::optional<std::int32_t> end_of_text;
  std::filesystem::path tokenizer_directory;  ///< tokenizer/ beside it; empty if absent
};

/// Reads the meta.json beside a token file; nothing if there is none that speaks of the file.
/// Throws Errc::corrupt_data if it is damaged.
std::optional<DataMeta> read_meta(const std::filesystem::path& token_file);

}  // namespace engine::data

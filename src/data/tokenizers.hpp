#pragma once
// The kinds of tokenizer, for the factory.
#include <filesystem>
#include <memory>
#include <string_view>

#include "engine/data/tokenizer.hpp"

namespace engine::data::detail {

/// Ids 0-255 are the bytes, 256 ends a document.
std::shared_ptr<const Tokenizer> make_byte_tokenizer();

/// GPT-2's byte-level BPE from the files in `directory`, see `make_tokenizer`.
std::shared_ptr<const Tokenizer> make_gpt2_tokenizer(const std::filesystem::path& directory);

/// True if `directory` holds the files of a gpt2 tokenizer.
bool has_gpt2_files(const std::filesystem::path& directory);

/// GPT-2's byte-level BPE from files in memory: [encoder JSON, merges] or [tokenizer.json].
/// `where` names them in errors. Throws: Errc::corrupt_data.
std::shared_ptr<const Tokenizer> make_gpt2_tokenizer(std::vector<TokenizerFile> files,
                                                     const std::string& where);

/// A SentencePiece model.
std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::filesystem::path& file);

/// Whole file as text. Throws: Errc::io; Errc::corrupt_data above `limit_bytes`.
std::string read_text(const std::filesystem::path& path, std::size_t limit_bytes);

}  // namespace engine::data::detail

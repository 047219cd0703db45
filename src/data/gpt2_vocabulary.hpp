#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/tokenizer.hpp"
#include "src/data/bpe.hpp"

namespace engine::data::detail {

/// A byte-level BPE vocabulary, checked: ids are 0..n-1, every byte has one, merges are distinct.
struct Gpt2Vocabulary {
  std::vector<std::string> pieces;  ///< bytes of each id
  std::array<std::int32_t, 256> byte_ids;
  std::vector<Merge> merges;  ///< by rank
  std::optional<std::int32_t> end_of_text;
};

/// Parses [encoder JSON, merges] or [tokenizer.json]; `where` names the folder in errors.
/// Throws: Errc::corrupt_data for files that make no vocabulary, Errc::invalid_argument for a
/// tokenizer.json that is not GPT-2's kind.
Gpt2Vocabulary parse_gpt2_vocabulary(std::span<const TokenizerFile> files,
                                     const std::string& where);

}  // namespace engine::data::detail

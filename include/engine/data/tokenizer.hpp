#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace engine::data {

/// A file a tokenizer is made of, byte for byte.
struct TokenizerFile {
  std::string name;
  std::string contents;
};

/// Text to token ids and back. Immutable, so safe to use from many threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// "bytes", "gpt2" or "sentencepiece".
  std::string_view name() const noexcept { return name_; }

  /// xxh3-128 of the contents of `files()`, 32 hex digits: equal if and only if the tokenizer is.
  const std::string& identity() const noexcept { return identity_; }

  std::span<const TokenizerFile> files() const noexcept { return files_; }

  virtual std::int32_t vocab_size() const noexcept = 0;

  /// Id that ends a document, if the vocabulary has one.
  virtual std::optional<std::int32_t> end_of_text() const noexcept = 0;

  /// Ids of ordinary text: names of special tokens in it have no special meaning, and no marker
  /// is added. bytes and gpt2 are lossless for any bytes; sentencepiece normalises as its model
  /// says.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// Throws: Errc::invalid_argument for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// Writes `files()` and `tokenizer_info.json` (name and identity) into `directory`, which is
  /// made if needed; read it back with `load_tokenizer`. The files are synced to disk.
  /// Throws: Errc::io.
  void save(const std::filesystem::path& directory) const;

 protected:
  Tokenizer(std::string_view name, std::vector<TokenizerFile> files);

  /// The part of `decode` that all share: refuses ids outside [0, vocab_size()).
  void check_ids(std::span<const std::int32_t> ids) const;

 private:
  std::string_view name_;
  std::vector<TokenizerFile> files_;
  std::string identity_;
};

/// Makes a tokenizer from what users write: "bytes", "gpt2:DIR" or "sentencepiece:FILE".
/// A gpt2 DIR holds encoder.json and vocab.bpe, or tokenizer.json, or vocab.json and merges.txt.
/// Throws: Errc::invalid_argument for other text; Errc::io; Errc::corrupt_data.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view text);

/// Loads a directory written by `save`, or a Hugging Face one. What is found decides:
/// tokenizer_info.json (then the identity is checked), tokenizer.model, or the files of gpt2.
/// Throws: Errc::invalid_argument if it holds no tokenizer; Errc::io; Errc::corrupt_data.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& directory);

}  // namespace engine::data

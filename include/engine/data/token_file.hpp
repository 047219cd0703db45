#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "engine/core/mapped_file.hpp"

namespace engine::data {

/// How tokens are stored; the names in a config are "auto", "raw_u16", "raw_u32", "llmc" and
/// "megatron".
enum class TokenFormat : std::uint8_t {
  automatic,  ///< found from the file, see `TokenFile::open`
  raw_u16,    ///< little-endian uint16, no header (nanoGPT)
  raw_u32,    ///< little-endian uint32, no header
  llmc,       ///< llm.c: 256 int32 of header, then uint16 (magic 20240520) or uint32 (20240801)
  megatron,   ///< Megatron: `x.bin` with `x.idx` beside it; documents run on back to back
};

std::string_view name(TokenFormat format) noexcept;

/// Throws: Errc::invalid_argument for a name that is not one of the five.
TokenFormat parse_token_format(std::string_view text);

/// Read-only, memory-mapped random access to one file of tokens. Safe to read from many threads.
class TokenFile {
 public:
  /// Opens `path`; tokens must be in [0, vocab_size).
  /// `automatic` takes, in this order: llm.c if the file starts with its magic, Megatron if a
  /// `.bin` has its `.idx` beside it, what a `meta.json` of `prepare` beside it says, raw_u16.
  /// Throws: Errc::io; Errc::corrupt_data where sizes, headers or indices do not fit together.
  static TokenFile open(const std::filesystem::path& path, TokenFormat format,
                        std::int64_t vocab_size);

  /// The format found, never `automatic`.
  TokenFormat format() const noexcept { return format_; }
  std::int64_t tokens() const noexcept { return tokens_; }
  const std::filesystem::path& path() const noexcept { return file_.path(); }

  /// Copies tokens [begin, begin + out.size()). Tokens are checked against the vocabulary before
  /// their first use, a block of 65,536 at a time, so that large files open at once.
  /// Throws: Errc::corrupt_data naming file, position, id and vocabulary.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  enum class Element : std::uint8_t { u8, i8, i16, u16, i32, u32, i64 };
  struct Layout {
    TokenFormat format;
    Element element;
    std::size_t offset_bytes;
    std::int64_t tokens;
  };
  static Layout raw(const MappedFile& file, TokenFormat format);
  static Layout llmc(const MappedFile& file);
  static Layout megatron(const MappedFile& file);
  static Layout detect(const MappedFile& file);

  TokenFile(MappedFile file, const Layout& layout, std::int64_t vocab_size);

  void check_block(std::int64_t block) const;
  template <typename F>
  decltype(auto) with_type(F&& body) const;

  MappedFile file_;
  TokenFormat format_;
  Element element_;
  std::span<const std::byte> data_;
  std::int64_t tokens_;
  std::int64_t vocab_size_;
  std::unique_ptr<std::atomic<bool>[]> checked_;  // one a block
};

}  // namespace engine::data

#include "engine/data/token_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/core/error.hpp"

namespace engine::data {
namespace {

constexpr std::int64_t kBlock = 65536;
constexpr std::array<std::pair<TokenFormat, std::string_view>, 5> kNames = {{
    {TokenFormat::automatic, "auto"},
    {TokenFormat::raw_u16, "raw_u16"},
    {TokenFormat::raw_u32, "raw_u32"},
    {TokenFormat::llmc, "llmc"},
    {TokenFormat::megatron, "megatron"},
}};

template <typename T>
T load(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::string_view name(TokenFormat format) noexcept {
  for (const auto& [value, text] : kNames) {
    if (value == format) return text;
  }
  return "unknown";
}

TokenFormat parse_token_format(std::string_view text) {
  for (const auto& [value, known] : kNames) {
    if (known == text) return value;
  }
  ENGINE_FAIL(Errc::invalid_argument,
              "token format: expected auto, raw_u16, raw_u32, llmc or megatron, got \"{}\"", text);
}

TokenFile TokenFile::open(const std::filesystem::path& path, TokenFormat format,
                          std::int64_t vocab_size) {
  ENGINE_CHECK(vocab_size >= 1 && vocab_size <= std::numeric_limits<std::int32_t>::max(),
               Errc::invalid_argument, "{}: expected a vocabulary size in [1, 2^31), got {}",
               path.string(), vocab_size);
  MappedFile file(path);
  Layout layout = {};
  switch (format) {
    case TokenFormat::automatic:
      layout = detect(file);
      break;
    case TokenFormat::raw_u16:
    case TokenFormat::raw_u32:
      layout = raw(file, format);
      break;
    case TokenFormat::llmc:
      layout = llmc(file);
      break;
    case TokenFormat::megatron:
      layout = megatron(file);
      break;
  }
  return {std::move(file), layout, vocab_size};
}

TokenFile::TokenFile(MappedFile file, const Layout& layout, std::int64_t vocab_size)
    : file_(std::move(file)),
      format_(layout.format),
      element_(layout.element),
      data_(file_.bytes().subspan(layout.offset_bytes)),
      tokens_(layout.tokens),
      vocab_size_(vocab_size),
      checked_(std::make_unique<std::atomic<bool>[]>(
          static_cast<std::size_t>((layout.tokens + kBlock - 1) / kBlock))) {}

template <typename F>
decltype(auto) TokenFile::with_type(F&& body) const {
  switch (element_) {
    case Element::u8:
      return body(std::uint8_t{});
    case Element::i8:
      return body(std::int8_t{});
    case Element::i16:
      return body(std::int16_t{});
    case Element::u16:
      return body(std::uint16_t{});
    case Element::i32:
      return body(std::int32_t{});
    case Element::u32:
      return body(std::uint32_t{});
    case Element::i64:
      return body(std::int64_t{});
  }
  ENGINE_FAIL(Errc::internal, "unknown element type of {}", path().string());
}

void TokenFile::check_block(std::int64_t block) const {
  std::atomic<bool>& checked = checked_[static_cast<std::size_t>(block)];
  if (checked.load(std::memory_order_relaxed)) return;
  with_type([&](auto type) {
    using T = decltype(type);
    const std::int64_t end = std::min(tokens_, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < end; ++i) {
      const auto id = static_cast<std::int64_t>(load<T>(data_.data(), i));
      ENGINE_CHECK(id >= 0 && id < vocab_size_, Errc::corrupt_data,
                   "{}: token {} (byte {}): expected an id in [0, {}) of the vocabulary, got {} "
                   "(format {})",
                   path().string(), i,
                   file_.size() - data_.size() + static_cast<std::size_t>(i) * sizeof(T),
                   vocab_size_, id, name(format_));
    }
  });
  checked.store(true, std::memory_order_relaxed);
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  ENGINE_CHECK(begin >= 0 && begin <= tokens_ && count <= tokens_ - begin, Errc::invalid_argument,
               "{}: tokens [{}, {} + {}) are not among its {}", path().string(), begin, begin,
               count, tokens_);
  if (count == 0) return;
  for (std::int64_t b = begin / kBlock; b <= (begin + count - 1) / kBlock; ++b) check_block(b);
  with_type([&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < count; ++i) {
      out[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(load<T>(data_.data(), begin + i));
    }
  });
}

}  // namespace engine::data

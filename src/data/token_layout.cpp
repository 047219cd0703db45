// Headers and indices of the token formats: where the tokens of a file start and how many there
// are. Everything read here may be hostile.
#include <cstring>
#include <limits>
#include <string>

#include "engine/core/error.hpp"
#include "engine/data/meta.hpp"
#include "engine/data/token_file.hpp"
#include "src/core/text.hpp"
#include "src/data/paths.hpp"

namespace engine::data {
namespace {

constexpr std::size_t kLlmcHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t kLlmcGpt2 = 20240520;
constexpr std::int32_t kLlmcLlama3 = 20240801;
constexpr std::int32_t kLlmcEvaluation = 20240522;
constexpr char kMegatronMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::size_t kMegatronHeaderBytes = 34;

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool is_llmc_magic(std::int32_t magic) {
  return magic == kLlmcGpt2 || magic == kLlmcLlama3 || magic == kLlmcEvaluation;
}

std::filesystem::path index_path(const std::filesystem::path& path) {
  return std::filesystem::path(path).replace_extension(".idx");
}

/// What the `meta.json` beside `file` says of it; raw_u16 if there is none that does.
TokenFormat format_by_meta(const MappedFile& file) {
  const std::optional<DataMeta> meta = read_meta(file.path());
  if (!meta) return TokenFormat::raw_u16;
  const bool wide = meta->format == "raw_u32";
  ENGINE_CHECK(wide || meta->format == "raw_u16", Errc::corrupt_data,
               "meta.json beside {}: format: expected raw_u16 or raw_u32, got {}",
               file.path().string(), engine::detail::printable(meta->format));
  const std::size_t width = wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t);
  ENGINE_CHECK(
      static_cast<std::size_t>(meta->tokens) == file.size() / width, Errc::corrupt_data,
      "{} has {} bytes, but the meta.json beside it says {} tokens of {} bytes: prepare it "
      "again",
      file.path().string(), file.size(), meta->tokens, width);
  return wide ? TokenFormat::raw_u32 : TokenFormat::raw_u16;
}

/// Checks a Megatron index against the size of its data; returns the number of tokens.
std::int64_t check_sequences(const MappedFile& index, std::uint64_t sequences,
                             std::uint64_t documents, std::uint64_t element_bytes,
                             std::uint64_t data_bytes) {
  const std::string where = index.path().string();
  const std::size_t lengths = kMegatronHeaderBytes;
  const std::size_t pointers = lengths + sequences * sizeof(std::int32_t);
  const std::size_t boundaries = pointers + sequences * sizeof(std::int64_t);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < sequences; ++i) {
    const auto length = load<std::int32_t>(index.bytes(), lengths + i * sizeof(std::int32_t));
    const auto pointer = load<std::int64_t>(index.bytes(), pointers + i * sizeof(std::int64_t));
    ENGINE_CHECK(length >= 0, Errc::corrupt_data, "{}: sequence {}: length {} is negative", where,
                 i, length);
    ENGINE_CHECK(pointer >= 0 && static_cast<std::uint64_t>(pointer) == at, Errc::corrupt_data,
                 "{}: sequence {}: expected it at byte {} of the data, got {}", where, i, at,
                 pointer);
    at += static_cast<std::uint64_t>(length) * element_bytes;
    ENGINE_CHECK(at <= data_bytes, Errc::corrupt_data,
                 "{}: sequence {} ends at byte {} of the data, which has {}", where, i, at,
                 data_bytes);
  }
  ENGINE_CHECK(at == data_bytes, Errc::corrupt_data,
               "{}: expected {} bytes of tokens by the index, got {}", where, at, data_bytes);
  std::int64_t previous = 0;
  for (std::size_t i = 0; i < documents; ++i) {
    const auto document = load<std::int64_t>(index.bytes(), boundaries + i * sizeof(std::int64_t));
    const bool ordered = i == 0 ? document == 0 : document >= previous;
    ENGINE_CHECK(ordered && static_cast<std::uint64_t>(document) <= sequences, Errc::corrupt_data,
                 "{}: document {} starts at sequence {}, after {} of {}", where, i, document,
                 previous, sequences);
    previous = document;
  }
  ENGINE_CHECK(static_cast<std::uint64_t>(previous) == sequences, Errc::corrupt_data,
               "{}: documents end at sequence {}, expected {}", where, previous, sequences);
  return static_cast<std::int64_t>(at / element_bytes);
}

}  // namespace

TokenFile::Layout TokenFile::detect(const MappedFile& file) {
  if (file.size() >= sizeof(std::int32_t) && is_llmc_magic(load<std::int32_t>(file.bytes(), 0))) {
    return llmc(file);
  }
  if (file.path().extension() == ".bin" && detail::exists(index_path(file.path()))) {
    return megatron(file);
  }
  return raw(file, format_by_meta(file));
}

TokenFile::Layout TokenFile::raw(const MappedFile& file, TokenFormat format) {
  const bool wide = format == TokenFormat::raw_u32;
  const std::size_t width = wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t);
  ENGINE_CHECK(file.size() % width == 0, Errc::corrupt_data,
               "{}: {}: expected a multiple of {} bytes, got {}", file.path().string(),
               name(format), width, file.size());
  return {format, wide ? Element::u32 : Element::u16, 0,
          static_cast<std::int64_t>(file.size() / width)};
}

TokenFile::Layout TokenFile::llmc(const MappedFile& file) {
  const std::string where = file.path().string();
  ENGINE_CHECK(file.size() >= kLlmcHeaderBytes, Errc::corrupt_data,
               "{}: llm.c: expected a header of {} bytes, got a file of {}", where,
               kLlmcHeaderBytes, file.size());
  const auto magic = load<std::int32_t>(file.bytes(), 0);
  const auto version = load<std::int32_t>(file.bytes(), 4);
  const auto tokens = load<std::int32_t>(file.bytes(), 8);
  ENGINE_CHECK(magic != kLlmcEvaluation, Errc::corrupt_data,
               "{}: llm.c evaluation files (magic {}) hold no training tokens", where, magic);
  ENGINE_CHECK(is_llmc_magic(magic), Errc::corrupt_data,
               "{}: llm.c: expected magic {} (uint16) or {} (uint32), got {}", where, kLlmcGpt2,
               kLlmcLlama3, magic);
  const bool wide = magic == kLlmcLlama3;
  const std::int32_t expected_version = wide ? 7 : 1;
  ENGINE_CHECK(version == expected_version, Errc::corrupt_data,
               "{}: llm.c: expected version {}, got {}", where, expected_version, version);
  const std::size_t width = wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t);
  ENGINE_CHECK(
      tokens >= 0 && file.size() == kLlmcHeaderBytes + static_cast<std::size_t>(tokens) * width,
      Errc::corrupt_data,
      "{}: llm.c: the header says {} tokens of {} bytes after {} bytes of header, got a "
      "file of {} bytes",
      where, tokens, width, kLlmcHeaderBytes, file.size());
  return {TokenFormat::llmc, wide ? Element::u32 : Element::u16, kLlmcHeaderBytes, tokens};
}

TokenFile::Layout TokenFile::megatron(const MappedFile& file) {
  ENGINE_CHECK(file.path().extension() == ".bin", Errc::invalid_argument,
               "{}: megatron: expected the .bin file of a .bin and .idx pair",
               file.path().string());
  const MappedFile index(index_path(file.path()));
  const std::string where = index.path().string();
  ENGINE_CHECK(index.size() >= kMegatronHeaderBytes, Errc::corrupt_data,
               "{}: megatron: expected a header of {} bytes, got a file of {}", where,
               kMegatronHeaderBytes, index.size());
  ENGINE_CHECK(std::memcmp(index.bytes().data(), kMegatronMagic, sizeof(kMegatronMagic)) == 0,
               Errc::corrupt_data, "{}: megatron: expected it to start with MMIDIDX", where);
  const auto version = load<std::uint64_t>(index.bytes(), 9);
  ENGINE_CHECK(version == 1, Errc::corrupt_data, "{}: megatron: expected version 1, got {}", where,
               version);
  const auto code = load<std::uint8_t>(index.bytes(), 17);
  constexpr Element kElements[] = {Element::u8,  Element::i8, Element::i16, Element::i32,
                                   Element::i64, Element::u8, Element::u8,  Element::u16};
  constexpr std::uint64_t kWidths[] = {1, 1, 2, 4, 8, 8, 4, 2};
  ENGINE_CHECK(code >= 1 && code <= 8 && code != 6 && code != 7, Errc::corrupt_data,
               "{}: megatron: expected an integer dtype code (1-5 or 8), got {}", where, code);
  const auto sequences = load<std::uint64_t>(index.bytes(), 18);
  const auto documents = load<std::uint64_t>(index.bytes(), 26);
  // Bounded by the size before any product is formed, so nothing overflows.
  const std::uint64_t room = index.size() - kMegatronHeaderBytes;
  const bool plausible = sequences <= room / 12 && documents <= room / 8;
  const std::uint64_t expected = plausible ? sequences * 12 + documents * 8 : 0;
  ENGINE_CHECK(plausible && (room == expected || room == expected + sequences), Errc::corrupt_data,
               "{}: megatron: {} sequences and {} document marks do not fit a file of {} bytes",
               where, sequences, documents, index.size());
  ENGINE_CHECK(documents >= 1 || sequences == 0, Errc::corrupt_data,
               "{}: megatron: expected at least one document mark, got none", where);
  const std::int64_t tokens =
      check_sequences(index, sequences, documents, kWidths[code - 1], file.size());
  return {TokenFormat::megatron, kElements[code - 1], 0, tokens};
}

}  // namespace engine::data

#include "src/data/gpt2_splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "engine/core/error.hpp"

namespace engine::data::detail {
namespace {

// PCRE2's own \s also takes U+180E, so White_Space is spelled out. The possessive forms match the
// same as OpenAI's pattern 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
// ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#define ENGINE_SPACE                                                                    \
  R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F})" \
  R"(\x{205F}\x{3000})"
constexpr char kPattern[] =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^)" ENGINE_SPACE
    R"(\p{L}\p{N}]++|[)" ENGINE_SPACE R"(]+(?![^)" ENGINE_SPACE R"(])|[)" ENGINE_SPACE R"(]+)";
#undef ENGINE_SPACE

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

/// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t sequence_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continued = [&](std::size_t i) { return (at(i) & 0xC0U) == 0x80U; };
  const std::uint32_t lead = at(0);
  if (text.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continued(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && at(1) < 0xA0;
    const bool surrogate = lead == 0xED && at(1) >= 0xA0;
    return continued(1) && continued(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && at(1) < 0x90;
    const bool too_large = lead == 0xF4 && at(1) >= 0x90;
    return continued(1) && continued(2) && continued(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

std::size_t invalid_utf8_prefix(std::string_view text) noexcept {
  std::size_t length = 0;
  while (length < text.size() && sequence_length(text.substr(length)) == 0) ++length;
  return length;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t length = 0;
  while (const std::size_t step = sequence_length(text.substr(length))) length += step;
  return length;
}

struct Gpt2Splitter::Code {
  pcre2_code* pattern = nullptr;
  ~Code() { pcre2_code_free(pattern); }
};

Gpt2Splitter::Gpt2Splitter() : code_(std::make_unique<Code>()) {
  int error = 0;
  std::size_t offset = 0;
  code_->pattern = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  ENGINE_ASSERT(code_->pattern != nullptr, "PCRE2 refused the pattern at {}: error {}", offset,
                error);
  // Without a just-in-time compiler the interpreter matches the same, only slower.
  static_cast<void>(pcre2_jit_compile(code_->pattern, PCRE2_JIT_COMPLETE));
}

Gpt2Splitter::~Gpt2Splitter() = default;

void Gpt2Splitter::split(std::string_view text, FunctionRef<void(std::string_view)> take) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code_->pattern, nullptr));
  ENGINE_ASSERT(match != nullptr, "PCRE2 has no memory for a match");
  const std::size_t* span = pcre2_get_ovector_pointer(match.get());
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
    std::size_t at = 0;
    while (at < valid.size()) {
      // The text was checked above; a check in every call would be quadratic.
      const int found = pcre2_match(code_->pattern, reinterpret_cast<PCRE2_SPTR>(valid.data()),
                                    valid.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      ENGINE_ASSERT(found > 0 && span[0] == at && span[1] > at,
                    "PCRE2 cannot split text at byte {}: result {}", at, found);
      take(valid.substr(at, span[1] - at));
      at = span[1];
    }
    text.remove_prefix(valid.size());
    const std::size_t invalid = invalid_utf8_prefix(text);
    if (invalid > 0) take(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

}  // namespace engine::data::detail

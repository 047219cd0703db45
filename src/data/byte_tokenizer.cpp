#include "src/data/tokenizers.hpp"

namespace engine::data {
namespace {

constexpr std::int32_t kEndOfDocument = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer("bytes", {}) {}

  std::int32_t vocab_size() const noexcept override { return kEndOfDocument + 1; }
  std::optional<std::int32_t> end_of_text() const noexcept override { return kEndOfDocument; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  /// The end of a document is no text.
  std::string decode(std::span<const std::int32_t> ids) const override {
    check_ids(ids);
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id != kEndOfDocument) text.push_back(static_cast<char>(id));
    }
    return text;
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> detail::make_byte_tokenizer() {
  return std::make_shared<ByteTokenizer>();
}

}  // namespace engine::data

#include <sentencepiece_processor.h>

#include "engine/core/error.hpp"
#include "src/data/tokenizers.hpp"

namespace engine::data {
namespace {

constexpr std::size_t kLimitBytes = std::size_t{256} << 20;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::vector<TokenizerFile> model, const std::string& where)
      : Tokenizer("sentencepiece", std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(files().front().contents);
    ENGINE_CHECK(status.ok() && processor_.GetPieceSize() > 0, Errc::corrupt_data,
                 "{}: not a SentencePiece model: {}", where, status.ToString());
  }

  std::int32_t vocab_size() const noexcept override { return processor_.GetPieceSize(); }

  std::optional<std::int32_t> end_of_text() const noexcept override {
    const int id = processor_.eos_id();
    return id >= 0 ? std::optional<std::int32_t>(id) : std::nullopt;
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    ENGINE_CHECK(status.ok(), Errc::invalid_argument, "SentencePiece cannot encode the text: {}",
                 status.ToString());
    return {ids.begin(), ids.end()};
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    check_ids(ids);
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    ENGINE_CHECK(status.ok(), Errc::invalid_argument, "SentencePiece cannot decode the tokens: {}",
                 status.ToString());
    return text;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::shared_ptr<const Tokenizer> detail::make_sentencepiece_tokenizer(
    const std::filesystem::path& file) {
  std::vector<TokenizerFile> model = {{"tokenizer.model", read_text(file, kLimitBytes)}};
  return std::make_shared<SentencePieceTokenizer>(std::move(model), file.string());
}

}  // namespace engine::data

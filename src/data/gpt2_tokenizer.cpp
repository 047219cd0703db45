#include <array>
#include <utility>

#include "engine/core/error.hpp"
#include "src/data/gpt2_splitter.hpp"
#include "src/data/gpt2_vocabulary.hpp"
#include "src/data/paths.hpp"
#include "src/data/tokenizers.hpp"

namespace engine::data {
namespace {

constexpr std::size_t kLimitBytes = std::size_t{64} << 20;

/// The layouts of a vocabulary, most certain first: only GPT-2 has OpenAI's names, and
/// tokenizer.json says how text is split, which vocab.json does not.
constexpr std::array<std::array<const char*, 2>, 3> kLayouts = {
    {{"encoder.json", "vocab.bpe"}, {"tokenizer.json", nullptr}, {"vocab.json", "merges.txt"}}};

bool has_layout(const std::filesystem::path& directory, const std::array<const char*, 2>& layout) {
  for (const char* name : layout) {
    if (name != nullptr && !detail::exists(directory / name)) return false;
  }
  return true;
}

class Gpt2Tokenizer final : public Tokenizer {
 public:
  Gpt2Tokenizer(std::vector<TokenizerFile> files, detail::Gpt2Vocabulary vocabulary)
      : Tokenizer("gpt2", std::move(files)),
        vocabulary_(std::move(vocabulary)),
        merges_(vocabulary_.merges) {}

  std::int32_t vocab_size() const noexcept override {
    return static_cast<std::int32_t>(vocabulary_.pieces.size());
  }

  std::optional<std::int32_t> end_of_text() const noexcept override {
    return vocabulary_.end_of_text;
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> piece_ids;
    splitter_.split(text, [&](std::string_view piece) {
      piece_ids.clear();
      for (const char c : piece) {
        piece_ids.push_back(vocabulary_.byte_ids[static_cast<unsigned char>(c)]);
      }
      merges_.apply(piece_ids);
      ids.insert(ids.end(), piece_ids.begin(), piece_ids.end());
    });
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    check_ids(ids);
    std::string text;
    for (const std::int32_t id : ids) text += vocabulary_.pieces[static_cast<std::size_t>(id)];
    return text;
  }

 private:
  detail::Gpt2Vocabulary vocabulary_;
  detail::BpeMerges merges_;
  detail::Gpt2Splitter splitter_;
};

}  // namespace

bool detail::has_gpt2_files(const std::filesystem::path& directory) {
  for (const auto& layout : kLayouts) {
    if (has_layout(directory, layout)) return true;
  }
  return false;
}

std::shared_ptr<const Tokenizer> detail::make_gpt2_tokenizer(std::vector<TokenizerFile> files,
                                                             const std::string& where) {
  Gpt2Vocabulary vocabulary = parse_gpt2_vocabulary(files, where);
  return std::make_shared<Gpt2Tokenizer>(std::move(files), std::move(vocabulary));
}

std::shared_ptr<const Tokenizer> detail::make_gpt2_tokenizer(
    const std::filesystem::path& directory) {
  for (const auto& layout : kLayouts) {
    if (!has_layout(directory, layout)) continue;
    std::vector<TokenizerFile> files;
    for (const char* name : layout) {
      if (name != nullptr) files.push_back({name, read_text(directory / name, kLimitBytes)});
    }
    return make_gpt2_tokenizer(std::move(files), directory.string());
  }
  ENGINE_FAIL(Errc::io,
              "{}: found no GPT-2 vocabulary: expected encoder.json and vocab.bpe, tokenizer.json, "
              "or vocab.json and merges.txt",
              directory.string());
}

}  // namespace engine::data

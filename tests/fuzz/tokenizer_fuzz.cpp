// Vocabulary files from anywhere, and the round trip of any bytes. The first byte of the input
// picks which; files are split at the first NUL.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.hpp"
#include "engine/data/tokenizer.hpp"
#include "src/data/tokenizers.hpp"

namespace {

using engine::data::Tokenizer;
using engine::data::TokenizerFile;

void expect_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
}

void load(std::vector<TokenizerFile> files) {
  try {
    const auto tokenizer = engine::data::detail::make_gpt2_tokenizer(std::move(files), "input");
    expect_round_trip(*tokenizer, "it's a  token\n\n \xff<|endoftext|>");
  } catch (const engine::Error& error) {
    // One clear line about the input, and never a failed invariant.
    const std::string_view what = error.what();
    if (error.code() == engine::Errc::internal || what.find('\n') != what.npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto small =
      engine::data::make_tokenizer("gpt2:" ENGINE_TEST_DIR "/golden/tokenizer/small");
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      expect_round_trip(*small, text);
      break;
    case 1: {
      const std::size_t cut = std::min(text.find('\0'), text.size());
      load({{"encoder.json", std::string(text.substr(0, cut))},
            {"vocab.bpe", std::string(text.substr(std::min(cut + 1, text.size())))}});
      break;
    }
    case 2:
      load({{"tokenizer.json", std::string(text)}});
      break;
    default:  // merges over a vocabulary that is right
      load({small->files()[0], {"vocab.bpe", std::string(text)}});
      break;
  }
  return 0;
}

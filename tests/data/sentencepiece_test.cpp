#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include "engine/data/tokenizer.hpp"
#include "tests/data/support.hpp"

namespace engine::data {
namespace {

using Ids = std::vector<std::int32_t>;

/// Trains a tiny model with all bytes to fall back on.
std::filesystem::path train(const TemporaryDirectory& dir) {
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text += "to be or not to be that is question " + std::to_string(i) + "\n";
    text += "the slings and arrows of outrageous fortune\n";
  }
  write_file(dir / "text.txt", text);
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + (dir / "text.txt").string() + " --model_prefix=" + (dir / "m").string() +
      " --vocab_size=330 --model_type=bpe --byte_fallback=true --minloglevel=2 "
      "--hard_vocab_limit=false");
  EXPECT_TRUE(status.ok()) << status.ToString();
  return dir / "m.model";
}

TEST(SentencePieceTokenizer, EncodesDecodesAndSaves) {
  const TemporaryDirectory dir;
  const auto tokenizer = make_tokenizer("sentencepiece:" + train(dir).string());
  EXPECT_EQ(tokenizer->name(), "sentencepiece");
  EXPECT_GT(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  for (const char* text : {"to be or not", "caf\xc3\xa9 \xe6\x97\xa5", "question 7"}) {
    const Ids ids = tokenizer->encode(text);
    EXPECT_FALSE(ids.empty());
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_LT(tokenizer->encode("to be").size(), 4U);
  tokenizer->save(dir / "saved");
  const auto loaded = load_tokenizer(dir / "saved");
  EXPECT_EQ(loaded->identity(), tokenizer->identity());
  EXPECT_EQ(loaded->encode("to be or"), tokenizer->encode("to be or"));
}

TEST(SentencePieceTokenizer, RefusesIdsOutsideTheVocabulary) {
  const TemporaryDirectory dir;
  const auto tokenizer = make_tokenizer("sentencepiece:" + train(dir).string());
  expect_error(Errc::invalid_argument, "cannot decode token 0",
               [&] { tokenizer->decode(Ids{tokenizer->vocab_size()}); });
}

TEST(SentencePieceTokenizer, RefusesFilesThatAreNoModel) {
  const TemporaryDirectory dir;
  for (const char* contents : {"", "not a model", "\x0a\x05"}) {
    write_file(dir / "tokenizer.model", contents);
    expect_error(Errc::corrupt_data, "not a SentencePiece model",
                 [&] { load_tokenizer(dir.path()); });
  }
}

}  // namespace
}  // namespace engine::data

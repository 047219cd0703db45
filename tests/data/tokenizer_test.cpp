#include "engine/data/tokenizer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/data/gpt2_splitter.hpp"
#include "tests/data/support.hpp"

namespace engine::data {
namespace {

using Ids = std::vector<std::int32_t>;

const std::filesystem::path kGolden = std::filesystem::path(ENGINE_TEST_DIR) / "golden/tokenizer";

std::shared_ptr<const Tokenizer> small() {
  static const auto tokenizer = make_tokenizer("gpt2:" + (kGolden / "small").string());
  return tokenizer;
}

void expect_goldens(const Tokenizer& tokenizer, const std::string& file) {
  const auto cases = nlohmann::json::parse(read_file(kGolden / file));
  ASSERT_GT(cases.size(), 100U);
  for (const auto& entry : cases) {
    const auto text = entry["text"].get<std::string>();
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, entry["ids"].get<Ids>()) << entry["text"].dump(-1, ' ', true);
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

std::shared_ptr<const Tokenizer> real_gpt2() {
  const auto path = shared_data("ENGINE_GPT2_VOCAB", "gpt2");
  return path.empty() ? nullptr : make_tokenizer("gpt2:" + path.string());
}

#define REQUIRE_GPT2(tokenizer)                                                         \
  const auto tokenizer = real_gpt2();                                                   \
  if (tokenizer == nullptr) {                                                           \
    GTEST_SKIP() << "MISSING: the GPT-2 vocabulary; set ENGINE_GPT2_VOCAB to a folder " \
                    "with encoder.json and vocab.bpe";                                  \
  }

TEST(ByteTokenizer, IsTheBytesAndAnEnd) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->name(), "bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(tokenizer->encode("a\xff"), (Ids{97, 255}));
  EXPECT_EQ(tokenizer->decode(Ids{97, 256, 255}), "a\xff");
}

TEST(Gpt2Tokenizer, MatchesHuggingFaceOnHardStrings) {
  EXPECT_EQ(small()->vocab_size(), 557);
  EXPECT_EQ(small()->end_of_text(), 556);
  expect_goldens(*small(), "small_cases.json");
}

TEST(Gpt2Tokenizer, MatchesTiktokenOnHardStrings) {
  REQUIRE_GPT2(tokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  expect_goldens(*tokenizer, "gpt2_cases.json");
}

TEST(Gpt2Tokenizer, CountsTheTokensOfTinyShakespeare) {
  REQUIRE_GPT2(tokenizer);
  const auto path = shared_data("ENGINE_TINYSHAKESPEARE", "tinyshakespeare.txt");
  if (path.empty()) {
    GTEST_SKIP() << "MISSING: tinyshakespeare.txt; set ENGINE_TINYSHAKESPEARE to its path";
  }
  const std::string text = read_file(path);
  const std::size_t cut = text.size() * 9 / 10;
  EXPECT_EQ(tokenizer->encode(std::string_view(text).substr(0, cut)).size(), 301966U);
  EXPECT_EQ(tokenizer->encode(std::string_view(text).substr(cut)).size(), 36059U);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(Gpt2Tokenizer, KeepsBytesThatAreNotUtf8) {
  for (const std::string& text :
       {std::string("\xff"), std::string("a\xc3"), std::string("\xed\xa0\x80x"),
        std::string("ab \xe2\x82 cd"), std::string("\xf4\x90\x80\x80"), std::string("\xc0\xaf  "),
        std::string("\x80\x80 \x80"), std::string("it's\xfe's")}) {
    EXPECT_EQ(small()->decode(small()->encode(text)), text);
  }
}

TEST(Gpt2Tokenizer, LongRunsAreNotQuadratic) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view piece :
       {"a", " ", "\n", "=", "1", "ab", "\xff", "\xe0\xb8\xb1", "'"}) {
    std::string text;
    while (text.size() < (1U << 20)) text += piece;
    EXPECT_EQ(small()->decode(small()->encode(text)), text);
    text += "x";
    EXPECT_EQ(small()->decode(small()->encode(text)), text);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_LT(taken.count(), 60);  // quadratic work would be hours
}

TEST(Gpt2Splitter, FindsTheValidUtf8AtTheStart) {
  using detail::valid_utf8_prefix;
  EXPECT_EQ(valid_utf8_prefix(""), 0U);
  EXPECT_EQ(valid_utf8_prefix("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 10U);
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98", "\xc3", "\xff"}) {
    EXPECT_EQ(valid_utf8_prefix(std::string("ok") + bad), 2U) << bad;
  }
}

TEST(Tokenizer, RefusesToDecodeIdsOutsideTheVocabulary) {
  for (const auto& tokenizer : {make_tokenizer("bytes"), small()}) {
    expect_error(Errc::invalid_argument, "cannot decode token 1", [&] {
      tokenizer->decode(Ids{0, tokenizer->vocab_size()});
    });
    expect_error(Errc::invalid_argument, "got -1", [&] { tokenizer->decode(Ids{-1}); });
  }
}

TEST(Tokenizer, RefusesNamesItDoesNotKnow) {
  for (const char* text : {"", "gpt2", "gpt2:", "words", "sentencepiece", "bytes:x"}) {
    expect_error(Errc::invalid_argument, "expected bytes, gpt2:DIR or sentencepiece:FILE",
                 [&] { make_tokenizer(text); });
  }
  const TemporaryDirectory dir;
  expect_error(Errc::io, "found no GPT-2 vocabulary",
               [&] { make_tokenizer("gpt2:" + dir.path().string()); });
  expect_error(Errc::io, "No such file", [&] { make_tokenizer("sentencepiece:/no/such"); });
  expect_error(Errc::invalid_argument, "found no tokenizer", [&] { load_tokenizer(dir.path()); });
}

TEST(Tokenizer, SavedOnesLoadAsTheSame) {
  for (const auto& tokenizer : {make_tokenizer("bytes"), small()}) {
    const TemporaryDirectory dir;
    tokenizer->save(dir / "tokenizer");
    const auto loaded = load_tokenizer(dir / "tokenizer");
    EXPECT_EQ(loaded->name(), tokenizer->name());
    EXPECT_EQ(loaded->identity(), tokenizer->identity());
    EXPECT_EQ(loaded->encode("to be, or"), tokenizer->encode("to be, or"));
  }
  EXPECT_NE(make_tokenizer("bytes")->identity(), small()->identity());
}

TEST(Tokenizer, NoticesSavedFilesThatChanged) {
  const TemporaryDirectory dir;
  small()->save(dir.path());
  write_file(dir / "vocab.bpe", read_file(dir / "vocab.bpe") + "\n");
  expect_error(Errc::corrupt_data, "identity", [&] { load_tokenizer(dir.path()); });
  write_file(dir / "tokenizer_info.json", "[]");
  expect_error(Errc::corrupt_data, "name and identity", [&] { load_tokenizer(dir.path()); });
}

TEST(Tokenizer, LoadsHuggingFaceDirectoriesOfEveryLayout) {
  const std::string text = "The tokens' question: don't you take ARMS?  \n\n";
  const std::pair<const char*, const char*> layouts[] = {
      {"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}, {"tokenizer.json", nullptr}};
  for (const auto& [vocab, merges] : layouts) {
    const TemporaryDirectory dir;
    const bool one = merges == nullptr;
    std::filesystem::copy_file(kGolden / "small" / (one ? "tokenizer.json" : "encoder.json"),
                               dir / vocab);
    if (!one) std::filesystem::copy_file(kGolden / "small/vocab.bpe", dir / merges);
    const auto loaded = load_tokenizer(dir.path());
    EXPECT_EQ(loaded->encode(text), small()->encode(text)) << vocab;
    EXPECT_EQ(loaded->end_of_text(), 556) << vocab;
    EXPECT_EQ(loaded->decode(Ids{556}), "<|endoftext|>") << vocab;
    EXPECT_EQ(loaded->identity() == small()->identity(), !one) << vocab;
  }
}

TEST(Tokenizer, RefusesHuggingFaceModelsWithOtherSplitRules) {
  const TemporaryDirectory dir;
  std::filesystem::copy_file(kGolden / "small/encoder.json", dir / "vocab.json");
  std::filesystem::copy_file(kGolden / "small/vocab.bpe", dir / "merges.txt");
  write_file(dir / "tokenizer_config.json", R"({"tokenizer_class":"Qwen2Tokenizer"})");
  expect_error(Errc::invalid_argument, "Qwen2Tokenizer is not supported",
               [&] { load_tokenizer(dir.path()); });
  write_file(dir / "tokenizer_config.json", R"({"tokenizer_class":"GPT2Tokenizer"})");
  EXPECT_EQ(load_tokenizer(dir.path())->vocab_size(), 557);
}

}  // namespace
}  // namespace engine::data

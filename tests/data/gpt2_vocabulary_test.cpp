#include "src/data/gpt2_vocabulary.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/data/support.hpp"

namespace engine::data::detail {
namespace {

using nlohmann::json;

const std::filesystem::path kSmall =
    std::filesystem::path(ENGINE_TEST_DIR) / "golden/tokenizer/small";

void parse(const std::string& vocab, const std::string& merges) {
  const TokenizerFile files[] = {{"encoder.json", vocab}, {"vocab.bpe", merges}};
  parse_gpt2_vocabulary(files, "dir");
}

json small_vocab() { return json::parse(read_file(kSmall / "encoder.json")); }

void parse_edited(const std::function<void(json&)>& edit) {
  json root = json::parse(read_file(kSmall / "tokenizer.json"));
  edit(root);
  const TokenizerFile files[] = {{"tokenizer.json", root.dump()}};
  parse_gpt2_vocabulary(files, "dir");
}

TEST(Gpt2Vocabulary, RefusesVocabulariesThatAreNotOne) {
  for (const char* text : {"", "{", "[1,2]", "3", "\"x\"", "{\"a\":0}x", "\xff"}) {
    expect_error(Errc::corrupt_data, "dir/encoder.json", [&] { parse(text, ""); });
  }
  expect_error(Errc::corrupt_data, "byte 0 has no token", [&] { parse("{}", ""); });
  expect_error(Errc::corrupt_data, "not valid JSON", [&] { parse(std::string(1 << 20, '['), ""); });
}

TEST(Gpt2Vocabulary, RefusesIdsThatAreNotZeroToN) {
  const auto with = [](const char* token, json id) {
    json vocab = small_vocab();
    vocab[token] = std::move(id);
    parse(vocab.dump(), "");
  };
  for (json id : {json("0"), json(1.5), json(nullptr), json::array({1})}) {
    expect_error(Errc::corrupt_data, "expected an integer id", [&] { with("a", id); });
  }
  for (json id : {json(-1), json(1LL << 40), json(~0ULL), json(INT32_MAX)}) {
    expect_error(Errc::corrupt_data, "expected an id in [0, 2^31)", [&] { with("a", id); });
  }
  expect_error(Errc::corrupt_data, "id 5 belongs to more than one", [&] { with("a", 5); });
  expect_error(Errc::corrupt_data, "expected every id from 0 to 556",
               [&] { with("a", 2000000000); });
  expect_error(Errc::corrupt_data, "byte alphabet", [&] { with("\xe6\x97\xa5\n", 557); });
  expect_error(Errc::corrupt_data, "byte alphabet", [&] { with("", 557); });
  json vocab = small_vocab();
  vocab.erase("a");
  expect_error(Errc::corrupt_data, "expected every id from 0 to 555",
               [&] { parse(vocab.dump(), ""); });
}

TEST(Gpt2Vocabulary, RefusesMergesThatAreNotOne) {
  const std::string vocab = read_file(kSmall / "encoder.json");
  parse(vocab, "#version: 0.2\nh e\r\n\n# #");
  for (const char* line : {"he", "h  e", " h", "h ", "h e x", " "}) {
    expect_error(Errc::corrupt_data, "vocab.bpe: line 1: expected two tokens",
                 [&] { parse(vocab, line); });
  }
  expect_error(Errc::corrupt_data, "merge 2: token \"zq\" is not in the vocabulary",
               [&] { parse(vocab, "h e\nz q"); });
  expect_error(Errc::corrupt_data, "is not in the vocabulary",
               [&] { parse(vocab, "h e\n#version: 0.2"); });
  expect_error(Errc::corrupt_data, "there twice", [&] { parse(vocab, "h e\nh e\n"); });
}

TEST(Gpt2Vocabulary, TakesMergesAsStringsOrPairs) {
  parse_edited([](json& root) {
    for (json& merge : root["model"]["merges"]) {
      const auto line = merge.is_string()
                            ? merge.get<std::string>()
                            : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      merge = line;
    }
  });
  parse_edited([](json& root) { root["model"]["merges"] = json::array({{"h", "e"}}); });
  for (const json& bad : {json(3), json("he"), json::array({"h"}), json::array({1, 2})}) {
    expect_error(Errc::corrupt_data, "merge 1: expected two tokens", [&] {
      parse_edited([&](json& root) { root["model"]["merges"] = json::array({bad}); });
    });
  }
}

TEST(Gpt2Vocabulary, RefusesOtherTokenizersByName) {
  const auto expect_refused = [](const char* part, const std::function<void(json&)>& edit) {
    expect_error(Errc::invalid_argument, part, [&] { parse_edited(edit); });
  };
  expect_refused("\"Unigram\"", [](json& r) { r["model"]["type"] = "Unigram"; });
  expect_refused("byte_fallback = true", [](json& r) { r["model"]["byte_fallback"] = true; });
  expect_refused("end_of_word_suffix", [](json& r) { r["model"]["end_of_word_suffix"] = "</w>"; });
  expect_refused("normalizer", [](json& r) { r["normalizer"] = {{"type", "NFC"}}; });
  expect_refused("\"Sequence\"", [](json& r) { r["pre_tokenizer"] = {{"type", "Sequence"}}; });
  expect_refused("pre_tokenizer null", [](json& r) { r["pre_tokenizer"] = nullptr; });
  expect_refused("add_prefix_space",
                 [](json& r) { r["pre_tokenizer"]["add_prefix_space"] = true; });
  expect_refused("use_regex", [](json& r) { r["pre_tokenizer"]["use_regex"] = false; });
  expect_refused("not special", [](json& r) { r["added_tokens"][0]["special"] = false; });
}

TEST(Gpt2Vocabulary, RefusesPartsOfTheWrongKind) {
  const auto expect_corrupt = [](const char* part, const std::function<void(json&)>& edit) {
    expect_error(Errc::corrupt_data, part, [&] { parse_edited(edit); });
  };
  expect_corrupt("model is missing", [](json& r) { r.erase("model"); });
  expect_corrupt("model: expected an object", [](json& r) { r["model"] = 3; });
  expect_corrupt("vocab: expected an object", [](json& r) { r["model"]["vocab"] = json::array(); });
  expect_corrupt("merges: expected an array", [](json& r) { r["model"]["merges"] = "x"; });
  expect_corrupt("added_tokens", [](json& r) { r["added_tokens"] = 3; });
  expect_corrupt("content", [](json& r) { r["added_tokens"] = {1}; });
  expect_corrupt("has ids", [](json& r) { r["added_tokens"][0]["content"] = "a"; });
}

}  // namespace
}  // namespace engine::data::detail

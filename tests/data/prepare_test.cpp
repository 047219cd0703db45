#include "engine/data/prepare.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/data/token_file.hpp"
#include "engine/data/tokenizer.hpp"
#include "src/data/documents.hpp"
#include "tests/data/support.hpp"

namespace engine::data {
namespace {

/// Tokens of a byte-level file as text, the end of a document as '|'.
std::string text_of(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::string text;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    std::uint16_t id = 0;
    std::memcpy(&id, bytes.data() + i, sizeof(id));
    text.push_back(id == 256 ? '|' : static_cast<char>(id));
  }
  return text;
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> split(const std::string& text, DocumentSplit how, bool whole) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", text);
  std::vector<std::string> out;
  detail::for_each_document(MappedFile(dir / "in.txt"), how, [&](const detail::Document& d) {
    out.emplace_back(whole ? d.whole : d.text);
  });
  return out;
}

using Texts = std::vector<std::string>;

TEST(Documents, SplitByFileLineOrBlankLine) {
  const std::string text = "\n\none\r\ntwo\n \n\nthree\nfour\n\n";
  EXPECT_EQ(split(text, DocumentSplit::file, false), Texts{text});
  EXPECT_EQ(split(text, DocumentSplit::line, false), (Texts{"one", "two", " ", "three", "four"}));
  EXPECT_EQ(split(text, DocumentSplit::blank, false), (Texts{"one\r\ntwo", "three\nfour"}));
  EXPECT_EQ(split("a", DocumentSplit::line, false), Texts{"a"});
  EXPECT_EQ(split("\n\n", DocumentSplit::line, false), Texts{});
  EXPECT_EQ(split("", DocumentSplit::file, false), Texts{});
}

TEST(Documents, WithTheirSeparatorsTheyAreTheFile) {
  const std::string text = "\n\none\r\ntwo\n \n\nthree\nfour\n\nfive";
  for (const auto how : {DocumentSplit::file, DocumentSplit::line, DocumentSplit::blank}) {
    std::string all;
    for (const std::string& document : split(text, how, true)) all += document;
    EXPECT_EQ(all, text);
  }
}

TEST(Prepare, CutsASingleDocumentAtTheLastFraction) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "0123456789");
  const auto result =
      prepare({.out = dir / "out", .inputs = {dir / "in.txt"}, .val_fraction = 0.2});
  EXPECT_EQ(result.train_tokens, 8);
  EXPECT_EQ(result.val_tokens, 2);
  EXPECT_EQ(text_of(dir / "out/train.bin"), "01234567");
  EXPECT_EQ(text_of(dir / "out/val.bin"), "89");
  EXPECT_EQ(names_in(dir / "out"), (Texts{"meta.json", "tokenizer", "train.bin", "val.bin"}));
}

TEST(Prepare, DoesNotCutCharacters) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "abc\xf0\x9f\x98\x80");
  prepare({.out = dir / "out", .inputs = {dir / "in.txt"}, .val_fraction = 0.3});
  EXPECT_EQ(text_of(dir / "out/train.bin"), "abc");
  EXPECT_EQ(text_of(dir / "out/val.bin"), "\xf0\x9f\x98\x80");
}

TEST(Prepare, TakesWholeDocumentsSpreadEvenlyForValidation) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "a\nb\nc\nd\ne\nf\n");
  const auto result = prepare({.out = dir / "out",
                               .inputs = {dir / "in.txt"},
                               .val_fraction = 0.34,
                               .split = DocumentSplit::line,
                               .append_eot = true});
  EXPECT_EQ(result.documents, 6);
  EXPECT_EQ(result.val_documents, 2);
  EXPECT_EQ(text_of(dir / "out/train.bin"), "a|b|d|e|");
  EXPECT_EQ(text_of(dir / "out/val.bin"), "c|f|");
}

TEST(Prepare, CutsEachOfAFewDocuments) {
  const TemporaryDirectory dir;
  write_file(dir / "a.txt", "0123456789");
  write_file(dir / "b.txt", "abcdefghij");
  prepare({.out = dir / "out",
           .inputs = {dir / "a.txt", dir / "b.txt"},
           .val_fraction = 0.2,
           .append_eot = true});
  EXPECT_EQ(text_of(dir / "out/train.bin"), "01234567abcdefgh");
  EXPECT_EQ(text_of(dir / "out/val.bin"), "89|ij|");
}

TEST(Prepare, WithoutAFractionThereIsNoValidationFile) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "one\n\ntwo\n");
  PrepareOptions options{.out = dir / "out", .inputs = {dir / "in.txt"}, .val_fraction = 0.5};
  prepare(options);
  options.val_fraction = 0;
  options.split = DocumentSplit::line;
  options.force = true;
  prepare(options);
  EXPECT_EQ(text_of(dir / "out/train.bin"), "one\n\ntwo\n");
  EXPECT_EQ(names_in(dir / "out"), (Texts{"meta.json", "tokenizer", "train.bin"}));
}

TEST(Prepare, ReadsJsonLines) {
  const TemporaryDirectory dir;
  write_file(dir / "in.jsonl",
             "{\"text\":\"a\\nb\",\"id\":1}\n\n{\"text\":\"\"}\r\n{\"text\":\"\\ud83d\\ude00\"}");
  PrepareOptions options{
      .out = dir / "out", .inputs = {dir / "in.jsonl"}, .val_fraction = 0, .append_eot = true};
  EXPECT_EQ(prepare(options).documents, 2);
  EXPECT_EQ(text_of(dir / "out/train.bin"), "a\nb|\xf0\x9f\x98\x80|");
  options.force = true;
  for (const char* line : {"{", "[]", "3", "{\"text\":3}", "{\"txt\":\"a\"}",
                           "{\"text\":\"\\ud800\"}", "{\"text\":\"\xff\"}"}) {
    write_file(dir / "in.jsonl", std::string("{\"text\":\"a\"}\n") + line);
    expect_error(Errc::corrupt_data, "in.jsonl:2: ", [&] { prepare(options); });
  }
  EXPECT_EQ(text_of(dir / "out/train.bin"), "a\nb|\xf0\x9f\x98\x80|");  // still the first one
}

TEST(Prepare, DescribesWhatItWrote) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "to be, or not to be");
  const std::string small = std::string(ENGINE_TEST_DIR) + "/golden/tokenizer/small";
  const auto result = prepare({.tokenizer = "gpt2:" + small,
                               .out = dir / "out",
                               .inputs = {dir / "in.txt"},
                               .val_fraction = 0.25});
  const auto meta = nlohmann::json::parse(read_file(dir / "out/meta.json"));
  const auto tokenizer = load_tokenizer(dir / "out/tokenizer");
  EXPECT_EQ(meta["tokenizer"], "gpt2");
  EXPECT_EQ(meta["tokenizer_identity"], tokenizer->identity());
  EXPECT_EQ(meta["tokenizer_files"].size(), 2U);
  EXPECT_EQ(meta["vocab_size"], 557);
  EXPECT_EQ(meta["end_of_text"], 556);
  EXPECT_EQ(meta["dtype"], "u16");
  EXPECT_EQ(meta["train_tokens"], result.train_tokens);
  EXPECT_EQ(meta["files"]["val.bin"]["tokens"], result.val_tokens);
  const auto train = TokenFile::open(dir / "out/train.bin", TokenFormat::automatic, 557);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(train.tokens()));
  train.read(0, ids);
  EXPECT_EQ(tokenizer->decode(ids), "to be, or not ");
}

/// GPT-2's small vocabulary with numbered special tokens up to 70,000.
TEST(Prepare, WritesUint32ForLargeVocabularies) {
  const TemporaryDirectory dir;
  const std::filesystem::path small = std::string(ENGINE_TEST_DIR) + "/golden/tokenizer/small";
  auto vocab = nlohmann::json::parse(read_file(small / "encoder.json"));
  for (int id = 557; id < 70000; ++id) vocab[fmt::format("<{}>", id)] = id;
  write_file(dir / "encoder.json", vocab.dump());
  std::filesystem::copy_file(small / "vocab.bpe", dir / "vocab.bpe");
  write_file(dir / "in.txt", "to be");
  const auto result = prepare({.tokenizer = "gpt2:" + dir.path().string(),
                               .out = dir / "out",
                               .inputs = {dir / "in.txt"},
                               .val_fraction = 0});
  EXPECT_EQ(std::filesystem::file_size(dir / "out/train.bin"),
            4 * static_cast<std::size_t>(result.train_tokens));
  EXPECT_EQ(TokenFile::open(dir / "out/train.bin", TokenFormat::automatic, 70000).format(),
            TokenFormat::raw_u32);
}

TEST(Prepare, DoesNotReplaceFilesUnlessForced) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "0123456789");
  PrepareOptions options{.out = dir / "out", .inputs = {dir / "in.txt"}, .val_fraction = 0};
  prepare(options);
  write_file(dir / "in.txt", "abc");
  expect_error(Errc::invalid_argument, "train.bin exists", [&] { prepare(options); });
  EXPECT_EQ(text_of(dir / "out/train.bin"), "0123456789");
  options.force = true;
  prepare(options);
  EXPECT_EQ(text_of(dir / "out/train.bin"), "abc");
}

TEST(Prepare, RefusesWhatItCannotRead) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "");
  write_file(dir / "in.txt.gz", "x");
  const auto run = [&](const char* input, double fraction) {
    prepare({.out = dir / "out", .inputs = {dir / input}, .val_fraction = fraction});
  };
  expect_error(Errc::invalid_argument, "found no text", [&] { run("in.txt", 0.1); });
  expect_error(Errc::invalid_argument, ".gz files", [&] { run("in.txt.gz", 0.1); });
  expect_error(Errc::invalid_argument, "--val-fraction = 1: expected a value in [0, 1)",
               [&] { run("in.txt", 1); });
  expect_error(Errc::io, "none.txt: No such file", [&] { run("none.txt", 0.1); });
  expect_error(Errc::invalid_argument, "expected an input", [&] { prepare({.out = dir / "out"}); });
  expect_error(Errc::invalid_argument, "got \"word\"", [] { parse_document_split("word"); });
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(Prepare, LeavesNothingBehindWhenWritingFails) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", std::string(3 << 20, 'x'));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit low = {1 << 20, before.rlim_max};  // stands in for a full disk
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  expect_error(Errc::io, "train.bin: File too large",
               [&] { prepare({.out = dir / "out", .inputs = {dir / "in.txt"}}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(names_in(dir / "out"), Texts{});
}

TEST(Prepare, ReportsProgressUpToTheEnd) {
  const TemporaryDirectory dir;
  write_file(dir / "a.txt", "one\ntwo\n\n");
  write_file(dir / "b.jsonl", "{\"text\":\"x\"}\n");
  std::int64_t last = 0;
  std::int64_t all = 0;
  prepare({.out = dir / "out",
           .inputs = {dir / "a.txt", dir / "b.jsonl"},
           .split = DocumentSplit::line,
           .progress = [&](std::int64_t done, std::int64_t total) {
             EXPECT_GT(done, last);
             last = done;
             all = total;
           }});
  EXPECT_EQ(last, 22);
  EXPECT_EQ(all, 22);
}

TEST(Prepare, CutsTinyShakespeareAsNanoGptDoes) {
  const auto vocabulary = shared_data("ENGINE_GPT2_VOCAB", "gpt2");
  const auto text = shared_data("ENGINE_TINYSHAKESPEARE", "tinyshakespeare.txt");
  if (vocabulary.empty() || text.empty()) {
    GTEST_SKIP() << "MISSING: the GPT-2 vocabulary or tinyshakespeare.txt; set ENGINE_GPT2_VOCAB "
                    "and ENGINE_TINYSHAKESPEARE";
  }
  const TemporaryDirectory dir;
  const auto result = prepare({.tokenizer = "gpt2:" + vocabulary.string(),
                               .out = dir / "out",
                               .inputs = {text},
                               .val_fraction = 0.1});
  EXPECT_EQ(result.train_tokens, 301966);
  EXPECT_EQ(result.val_tokens, 36059);
}

}  // namespace
}  // namespace engine::data

#include "engine/data/token_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/data/support.hpp"

namespace engine::data {
namespace {

std::vector<std::int32_t> read_all(const TokenFile& file) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(file.tokens()));
  file.read(0, out);
  return out;
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return bytes_of(header);
}

template <typename T>
std::string megatron_index(std::uint8_t code, const std::vector<std::int32_t>& lengths,
                           const std::vector<std::int64_t>& documents) {
  std::string out("MMIDIDX\0\0", 9);
  out += bytes_of<std::uint64_t>({1});
  out += static_cast<char>(code);
  out += bytes_of<std::uint64_t>({lengths.size(), documents.size()});
  std::vector<std::int64_t> pointers;
  std::int64_t at = 0;
  for (const std::int32_t length : lengths) {
    pointers.push_back(at);
    at += length * static_cast<std::int64_t>(sizeof(T));
  }
  return out + bytes_of(lengths) + bytes_of(pointers) + bytes_of(documents);
}

const std::vector<std::int32_t> kTokens = {3, 1, 4, 1, 5, 9, 2, 6};

TEST(TokenFile, TakesFilesWithoutAHeaderForUint16) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", bytes_of<std::uint16_t>({3, 1, 4, 1, 5, 9, 2, 6}));
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenFormat::automatic, 10);
  EXPECT_EQ(file.format(), TokenFormat::raw_u16);
  EXPECT_EQ(read_all(file), kTokens);
  std::vector<std::int32_t> some(3);
  file.read(4, some);
  EXPECT_EQ(some, (std::vector<std::int32_t>{5, 9, 2}));
}

TEST(TokenFile, ReadsUint32) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", bytes_of<std::uint32_t>({70000, 2}));
  EXPECT_EQ(read_all(TokenFile::open(dir / "a.bin", TokenFormat::raw_u32, 70001)),
            (std::vector<std::int32_t>{70000, 2}));
}

TEST(TokenFile, DetectsBothKindsOfLlmc) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin",
             llmc_header(20240520, 1, 8) + bytes_of<std::uint16_t>({3, 1, 4, 1, 5, 9, 2, 6}));
  write_file(dir / "b.bin",
             llmc_header(20240801, 7, 8) + bytes_of<std::uint32_t>({3, 1, 4, 1, 5, 9, 2, 6}));
  for (const char* name : {"a.bin", "b.bin"}) {
    const TokenFile file = TokenFile::open(dir / name, TokenFormat::automatic, 10);
    EXPECT_EQ(file.format(), TokenFormat::llmc);
    EXPECT_EQ(read_all(file), kTokens);
  }
}

TEST(TokenFile, DetectsMegatronOfEveryWidth) {
  const TemporaryDirectory dir;
  const auto check = [&]<typename T>(std::uint8_t code, T) {
    write_file(dir / "a.bin", bytes_of<T>({3, 1, 4, 1, 5, 9, 2, 6}));
    write_file(dir / "a.idx", megatron_index<T>(code, {3, 0, 5}, {0, 2, 3}));
    const TokenFile file = TokenFile::open(dir / "a.bin", TokenFormat::automatic, 10);
    EXPECT_EQ(file.format(), TokenFormat::megatron);
    EXPECT_EQ(read_all(file), kTokens) << "dtype code " << int{code};
  };
  check(1, std::uint8_t{});
  check(2, std::int8_t{});
  check(3, std::int16_t{});
  check(4, std::int32_t{});
  check(5, std::int64_t{});
  check(8, std::uint16_t{});
}

TEST(TokenFile, FollowsTheMetaFileOfPrepare) {
  const TemporaryDirectory dir;
  write_file(dir / "train.bin", bytes_of<std::uint32_t>({3, 1}));
  write_file(dir / "other.bin", bytes_of<std::uint16_t>({3, 1}));
  write_file(dir / "meta.json",
             R"({"format":"raw_u32","tokenizer":"bytes","tokenizer_identity":"0","vocab_size":257,)"
             R"("files":{"train.bin":{"tokens":2}}})");
  EXPECT_EQ(TokenFile::open(dir / "train.bin", TokenFormat::automatic, 10).format(),
            TokenFormat::raw_u32);
  EXPECT_EQ(TokenFile::open(dir / "other.bin", TokenFormat::automatic, 10).format(),
            TokenFormat::raw_u16);
  write_file(dir / "train.bin", bytes_of<std::uint32_t>({3}));
  expect_error(Errc::corrupt_data, "says 2 tokens",
               [&] { TokenFile::open(dir / "train.bin", TokenFormat::automatic, 10); });
}

TEST(TokenFile, IgnoresTheMetaFilesOfOthers) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", bytes_of<std::uint16_t>({3, 1}));
  for (const char* meta : {"[]", "3", "{\"vocab_size\":65}", "{\"files\":3}", "null"}) {
    write_file(dir / "meta.json", meta);
    EXPECT_EQ(TokenFile::open(dir / "a.bin", TokenFormat::automatic, 10).tokens(), 2);
  }
  write_file(dir / "meta.json", "{");
  expect_error(Errc::corrupt_data, "not valid JSON",
               [&] { TokenFile::open(dir / "a.bin", TokenFormat::automatic, 10); });
}

TEST(TokenFile, NamesFilePositionIdAndVocabularyOfABadToken) {
  const TemporaryDirectory dir;
  std::vector<std::uint16_t> tokens(200000, 1);
  tokens[150000] = 10;
  write_file(dir / "a.bin", bytes_of(tokens));
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenFormat::raw_u16, 10);
  std::vector<std::int32_t> out(1);
  file.read(131071, out);  // the last token of the second block: the third is not looked at yet
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_error(Errc::corrupt_data,
                 "token 150000 (byte 300000): expected an id in [0, 10) of the vocabulary, got 10",
                 [&] { file.read(196607, out); });
  }
}

TEST(TokenFile, RefusesNegativeTokens) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", bytes_of<std::int64_t>({1, -1}));
  write_file(dir / "a.idx", megatron_index<std::int64_t>(5, {2}, {0, 1}));
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenFormat::megatron, 10);
  std::vector<std::int32_t> out(1);
  expect_error(Errc::corrupt_data, "got -1", [&] { file.read(0, out); });
}

TEST(TokenFile, RefusesSizesThatDoNotFit) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", "abc");
  expect_error(Errc::corrupt_data, "expected a multiple of 2 bytes, got 3",
               [&] { TokenFile::open(dir / "a.bin", TokenFormat::automatic, 10); });
  expect_error(Errc::corrupt_data, "expected a multiple of 4 bytes, got 3",
               [&] { TokenFile::open(dir / "a.bin", TokenFormat::raw_u32, 10); });
  expect_error(Errc::corrupt_data, "expected a header of 1024 bytes, got a file of 3",
               [&] { TokenFile::open(dir / "a.bin", TokenFormat::llmc, 10); });
  expect_error(Errc::io, "No such file",
               [&] { TokenFile::open(dir / "b.bin", TokenFormat::automatic, 10); });
  expect_error(Errc::io, "a.idx",
               [&] { TokenFile::open(dir / "a.bin", TokenFormat::megatron, 10); });
}

TEST(TokenFile, RefusesLlmcHeadersThatDoNotFit) {
  const TemporaryDirectory dir;
  const auto open = [&](const std::string& contents) {
    write_file(dir / "a.bin", contents);
    TokenFile::open(dir / "a.bin", TokenFormat::llmc, 10);
  };
  expect_error(Errc::corrupt_data, "says 3 tokens",
               [&] { open(llmc_header(20240520, 1, 3) + "abcd"); });
  expect_error(Errc::corrupt_data, "says -1 tokens", [&] { open(llmc_header(20240520, 1, -1)); });
  expect_error(Errc::corrupt_data, "expected version 1, got 2",
               [&] { open(llmc_header(20240520, 2, 0)); });
  expect_error(Errc::corrupt_data, "got 7", [&] { open(llmc_header(7, 1, 0)); });
  expect_error(Errc::corrupt_data, "evaluation", [&] { open(llmc_header(20240522, 1, 0)); });
}

TEST(TokenFile, RefusesMegatronIndicesThatDoNotFit) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", bytes_of<std::uint16_t>({3, 1, 4}));
  const std::string good = megatron_index<std::uint16_t>(8, {1, 2}, {0, 2});
  const auto open = [&](const std::string& index) {
    write_file(dir / "a.idx", index);
    TokenFile::open(dir / "a.bin", TokenFormat::automatic, 10);
  };
  const auto patched = [&](std::size_t offset, auto value) {
    std::string copy = good;
    std::memcpy(copy.data() + offset, &value, sizeof(value));
    return copy;
  };
  open(good);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(open(good.substr(0, size)), Error) << size << " bytes of the index";
  }
  expect_error(Errc::corrupt_data, "start with MMIDIDX", [&] { open(patched(0, 'X')); });
  expect_error(Errc::corrupt_data, "version 1, got 2", [&] { open(patched(9, 2ULL)); });
  expect_error(Errc::corrupt_data, "dtype code", [&] { open(patched(17, '\x06')); });
  expect_error(Errc::corrupt_data, "do not fit", [&] { open(patched(18, 1ULL << 62)); });
  expect_error(Errc::corrupt_data, "do not fit", [&] { open(patched(26, ~0ULL)); });
  expect_error(Errc::corrupt_data, "negative", [&] { open(patched(34, -1)); });
  expect_error(Errc::corrupt_data, "which has 6", [&] { open(patched(38, 0x7fffffff)); });
  expect_error(Errc::corrupt_data, "expected 4 bytes", [&] { open(patched(38, 1)); });
  expect_error(Errc::corrupt_data, "expected it at byte 2", [&] { open(patched(50, 4LL)); });
  expect_error(Errc::corrupt_data, "document 0", [&] { open(patched(58, 1LL)); });
  expect_error(Errc::corrupt_data, "document 1", [&] { open(patched(66, 3LL)); });
  expect_error(Errc::corrupt_data, "end at sequence 1", [&] { open(patched(66, 1LL)); });
}

TEST(TokenFile, RefusesRangesOutsideTheFile) {
  const TemporaryDirectory dir;
  write_file(dir / "a.bin", bytes_of<std::uint16_t>({3, 1}));
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenFormat::raw_u16, 10);
  std::vector<std::int32_t> out(2);
  expect_error(Errc::invalid_argument, "not among its 2", [&] { file.read(1, out); });
  expect_error(Errc::invalid_argument, "not among its 2", [&] { file.read(-1, out); });
  file.read(2, std::span(out).first(0));
}

TEST(TokenFormat, HasTheNamesOfTheConfig) {
  for (const char* text : {"auto", "raw_u16", "raw_u32", "llmc", "megatron"}) {
    EXPECT_EQ(name(parse_token_format(text)), text);
  }
  expect_error(Errc::invalid_argument, "got \"u16\"", [] { parse_token_format("u16"); });
}

}  // namespace
}  // namespace engine::data

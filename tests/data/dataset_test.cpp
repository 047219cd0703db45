#include "engine/data/dataset.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/data/batch.hpp"
#include "tests/data/support.hpp"

namespace engine::data {
namespace {

/// Writes files of counting tokens: 0, 1, ... in the first, 100, 101, ... in the second.
std::vector<std::filesystem::path> counting_files(const TemporaryDirectory& dir,
                                                  const std::vector<int>& sizes) {
  std::vector<std::filesystem::path> paths;
  for (std::size_t f = 0; f < sizes.size(); ++f) {
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(sizes[f]));
    std::iota(tokens.begin(), tokens.end(), static_cast<std::uint16_t>(100 * f));
    paths.push_back(dir / (std::to_string(f) + ".bin"));
    write_file(paths.back(), bytes_of(tokens));
  }
  return paths;
}

using Tokens = std::vector<std::int32_t>;

TEST(TokenDataset, NumbersSamplesThroughAndDropsTails) {
  const TemporaryDirectory dir;
  // 9 tokens: 2 samples; 8: 1 (7 div 4); 0: none; 5: 1.
  const auto paths = counting_files(dir, {9, 8, 0, 5});
  const TokenDataset dataset(paths, TokenFormat::raw_u16, 4, 1000);
  ASSERT_EQ(dataset.samples(), 4);
  const Tokens first = {0, 4, 100, 300};
  for (std::int64_t i = 0; i < 4; ++i) {
    Tokens inputs(4);
    Tokens targets(4);
    dataset.sample(i, inputs, targets);
    const std::int32_t at = first[static_cast<std::size_t>(i)];
    EXPECT_EQ(inputs, (Tokens{at, at + 1, at + 2, at + 3}));
    EXPECT_EQ(targets, (Tokens{at + 1, at + 2, at + 3, at + 4}));
  }
}

TEST(TokenDataset, IgnoresTargetsButNotInputsOfTheIgnoredToken) {
  const TemporaryDirectory dir;
  const TokenDataset dataset(counting_files(dir, {5}), TokenFormat::raw_u16, 4, 1000, 2);
  Tokens inputs(4);
  Tokens targets(4);
  dataset.sample(0, inputs, targets);
  EXPECT_EQ(inputs, (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(targets, (Tokens{1, -1, 3, 4}));
}

TEST(TokenDataset, SaysHowManyTokensASampleNeeds) {
  const TemporaryDirectory dir;
  const auto paths = counting_files(dir, {4, 3});
  expect_error(Errc::invalid_argument, "1.bin: needs at least T+1 = 5 tokens for one sample, got 4",
               [&] { TokenDataset(paths, TokenFormat::raw_u16, 4, 1000); });
  expect_error(Errc::invalid_argument, "at least one token file",
               [&] { TokenDataset({}, TokenFormat::raw_u16, 4, 1000); });
}

TEST(TokenDataset, RefusesSamplesItDoesNotHave) {
  const TemporaryDirectory dir;
  const TokenDataset dataset(counting_files(dir, {5}), TokenFormat::raw_u16, 4, 1000);
  Tokens out(4);
  expect_error(Errc::invalid_argument, "sample 1", [&] { dataset.sample(1, out, out); });
  expect_error(Errc::invalid_argument, "sample -1", [&] { dataset.sample(-1, out, out); });
}

TEST(BatchReader, RowsFollowTheOrderAcrossEpochs) {
  const TemporaryDirectory dir;
  const TokenDataset dataset(counting_files(dir, {7}), TokenFormat::raw_u16, 2, 1000);
  const SampleOrder order(OrderKind::shuffled, 3, 5);
  const BatchReader reader(dataset, order);
  Tokens tokens(10);
  Tokens targets(10);
  std::vector<std::int64_t> ids = {-7};
  reader.read(2, 5, tokens, targets, &ids);
  ASSERT_EQ(ids.size(), 6U);
  for (std::size_t row = 0; row < 5; ++row) {
    const std::int64_t id = order.at(2 + static_cast<std::int64_t>(row));
    EXPECT_EQ(ids[row + 1], id);
    EXPECT_EQ(tokens[2 * row], 2 * id);
    EXPECT_EQ(targets[2 * row + 1], 2 * id + 2);
  }
}

TEST(BatchReader, PadsEvaluationWithIgnoredTargets) {
  const TemporaryDirectory dir;
  const TokenDataset dataset(counting_files(dir, {7}), TokenFormat::raw_u16, 2, 1000);
  const BatchReader reader(dataset, SampleOrder(OrderKind::shuffled, 3, 5));
  Tokens tokens(6, 77);
  Tokens targets(6, 77);
  reader.read_eval(1, 3, tokens, targets);
  EXPECT_EQ(tokens, (Tokens{2, 3, 4, 5, 0, 0}));
  EXPECT_EQ(targets, (Tokens{3, 4, 5, 6, -1, -1}));
  reader.read_eval(10, 3, tokens, targets);
  EXPECT_EQ(tokens, Tokens(6, 0));
  EXPECT_EQ(targets, Tokens(6, -1));
}

TEST(BatchReader, RefusesAnOrderOverOtherSamples) {
  const TemporaryDirectory dir;
  const TokenDataset dataset(counting_files(dir, {7}), TokenFormat::raw_u16, 2, 1000);
  expect_error(Errc::invalid_argument, "over 4 samples, the dataset has 3",
               [&] { BatchReader(dataset, SampleOrder(OrderKind::sequential, 4, 0)); });
}

}  // namespace
}  // namespace engine::data

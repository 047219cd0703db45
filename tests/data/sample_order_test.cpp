#include "engine/data/sample_order.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace engine::data {
namespace {

std::vector<std::int64_t> epoch(const SampleOrder& order, std::int64_t number) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < order.samples(); ++i) {
    out.push_back(order.at(number * order.samples() + i));
  }
  return out;
}

TEST(SampleOrder, EveryEpochIsABijection) {
  std::vector<std::int64_t> sizes = {1000, 4095, 4096, 4097, 65537};
  for (std::int64_t n = 1; n <= 130; ++n) sizes.push_back(n);
  for (const std::int64_t n : sizes) {
    for (const OrderKind kind : {OrderKind::sequential, OrderKind::shuffled}) {
      const SampleOrder order(kind, n, 42);
      for (const std::int64_t e : {0, 1, 7}) {
        std::vector<bool> seen(static_cast<std::size_t>(n));
        for (const std::int64_t sample : epoch(order, e)) {
          ASSERT_TRUE(sample >= 0 && sample < n) << n;
          ASSERT_FALSE(seen[static_cast<std::size_t>(sample)]) << n;
          seen[static_cast<std::size_t>(sample)] = true;
        }
      }
    }
  }
}

TEST(SampleOrder, DiffersByEpochAndSeed) {
  const SampleOrder a(OrderKind::shuffled, 1000, 1);
  const SampleOrder b(OrderKind::shuffled, 1000, 2);
  EXPECT_NE(epoch(a, 0), epoch(a, 1));
  EXPECT_NE(epoch(a, 0), epoch(b, 0));
  EXPECT_EQ(epoch(a, 3), epoch(SampleOrder(OrderKind::shuffled, 1000, 1), 3));
}

TEST(SampleOrder, SequentialCountsAndStartsOver) {
  const SampleOrder order(OrderKind::sequential, 3, 9);
  EXPECT_EQ(epoch(order, 5), (std::vector<std::int64_t>{0, 1, 2}));
}

// A run resumed by a later version must see the same order.
TEST(SampleOrder, KeepsItsGoldenValues) {
  const SampleOrder order(OrderKind::shuffled, 10, 1234);
  EXPECT_EQ(epoch(order, 0), (std::vector<std::int64_t>{5, 0, 9, 4, 8, 1, 3, 6, 2, 7}));
  EXPECT_EQ(epoch(order, 1), (std::vector<std::int64_t>{7, 2, 0, 3, 8, 4, 6, 9, 5, 1}));
  const SampleOrder large(OrderKind::shuffled, 1'000'000'007, 1234);
  EXPECT_EQ(large.at(0), 866'171'655);
  EXPECT_EQ(large.at(1'000'000'007), 213'009'871);
  EXPECT_EQ(large.at(123'456'789'012), 591'770'723);
}

TEST(SampleOrder, ServesTheLargestDataset) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const SampleOrder order(OrderKind::shuffled, kLargest, 3);
  EXPECT_NE(order.at(0), order.at(kLargest - 1));
  EXPECT_GE(order.at(kLargest), 0);
}

TEST(SampleOrder, PutsEverySampleAnywhere) {
  constexpr int kEpochs = 6000;
  for (const std::int64_t n : {2, 3, 6, 12}) {
    const SampleOrder order(OrderKind::shuffled, n, 77);
    std::vector<int> count(static_cast<std::size_t>(n));
    for (std::int64_t e = 0; e < kEpochs; ++e) ++count[static_cast<std::size_t>(order.at(e * n))];
    for (const int c : count) EXPECT_NEAR(c, kEpochs / static_cast<double>(n), 250) << n;
  }
}

TEST(SampleOrder, RefusesNoSamplesAndUnknownNames) {
  EXPECT_THROW(SampleOrder(OrderKind::shuffled, 0, 1), Error);
  EXPECT_EQ(parse_order("shuffled"), OrderKind::shuffled);
  EXPECT_EQ(parse_order("sequential"), OrderKind::sequential);
  EXPECT_THROW(parse_order("random"), Error);
}

}  // namespace
}  // namespace engine::data

#include "engine/parallel/shard_layout.hpp"

#include <gtest/gtest.h>

#include <random>

namespace engine::parallel {
namespace {

/// Pieces are disjoint, in order, inside the shard, and together every element exactly once.
void check(const std::vector<LayoutEntry>& entries, int shards) {
  const ShardLayout layout(entries, shards);
  ASSERT_EQ(layout.total_numel(), layout.shard_numel() * shards);
  ASSERT_EQ(layout.shard_numel() % ShardLayout::kAlignment, 0);
  std::int64_t end = 0;
  for (int i = 0; i < layout.entries(); ++i) {
    ASSERT_EQ(layout.offset(i) % ShardLayout::kAlignment, 0);
    ASSERT_GE(layout.offset(i), end);
    end = layout.offset(i) + layout.numel(i);
  }
  ASSERT_LE(end, layout.total_numel());
  std::vector<std::int64_t> covered(entries.size());
  for (int s = 0; s < shards; ++s) {
    std::int64_t at = 0;
    for (const ShardPiece& p : layout.pieces(s)) {
      const auto e = static_cast<std::size_t>(p.entry);
      ASSERT_GE(p.shard_begin, at);
      ASSERT_LE(p.shard_begin + p.numel, layout.shard_numel());
      ASSERT_EQ(s * layout.shard_numel() + p.shard_begin, layout.offset(p.entry) + p.entry_begin);
      ASSERT_EQ(p.entry_begin, covered[e]);
      if (p.entry_begin != 0) {
        ASSERT_EQ(p.entry_begin % entries[e].granularity, 0);
      }
      covered[e] += p.numel;
      at = p.shard_begin + p.numel;
    }
  }
  for (std::size_t e = 0; e < entries.size(); ++e) ASSERT_EQ(covered[e], entries[e].numel);
}

TEST(ShardLayout, CoversEveryElementOnceAtAnyShardCount) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<LayoutEntry> entries;
    for (std::uint32_t i = 0; i < 1 + random() % 12; ++i) {
      const std::int64_t rows = random() % 40;
      const std::int64_t cols = 1 + random() % 300;
      const std::int64_t granularity[] = {1, cols, std::max<std::int64_t>(rows * cols, 1)};
      entries.push_back({rows * cols, granularity[random() % 3]});
    }
    check(entries, 1 + static_cast<int>(random() % 9));
  }
}

TEST(ShardLayout, ParametersSmallerThanTheShardCountAreFine) {
  check({{3, 1}, {1, 1}, {0, 1}, {2, 2}}, 8);
}

TEST(ShardLayout, OneShardAddsOnlyAlignment) {
  const std::vector<LayoutEntry> entries = {{100, 1}, {64, 1}, {1, 1}};
  const ShardLayout layout(entries, 1);
  EXPECT_EQ(layout.total_numel(), 128 + 64 + 64);
  EXPECT_EQ(layout.offset(2), 192);
}

}  // namespace
}  // namespace engine::parallel

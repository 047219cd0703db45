#include "src/data/bpe.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace engine::data::detail {
namespace {

using Ids = std::vector<std::int32_t>;

/// The definition: again and again, the leftmost pair of the lowest rank.
Ids merge_slowly(std::span<const Merge> merges, Ids ids) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Merge& merge : merges) {
      for (std::size_t i = 0; i + 1 < ids.size() && !changed; ++i) {
        if (ids[i] != merge.left || ids[i + 1] != merge.right) continue;
        ids[i] = merge.result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        changed = true;
      }
      if (changed) break;
    }
  }
  return ids;
}

TEST(BpeMerges, MatchTheDefinitionForShortAndLongRuns) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const std::int32_t letters = 1 + round % 4;
    std::vector<Merge> merges;
    std::set<std::pair<std::int32_t, std::int32_t>> pairs;
    for (std::int32_t next = letters; next < letters + 30; ++next) {
      const auto any = [&] {
        return static_cast<std::int32_t>(random() % static_cast<unsigned>(next));
      };
      const std::int32_t left = any();
      const std::int32_t right = any();
      if (pairs.emplace(left, right).second) merges.push_back({left, right, next});
    }
    if (round % 3 == 0) std::shuffle(merges.begin(), merges.end(), random);
    const BpeMerges fast(merges);
    for (std::size_t size = 0; size <= 90; ++size) {
      Ids ids(size);
      for (auto& id : ids)
        id = static_cast<std::int32_t>(random() % static_cast<unsigned>(letters));
      const Ids expected = merge_slowly(merges, ids);
      fast.apply(ids);
      ASSERT_EQ(ids, expected) << "round " << round << ", " << size << " symbols";
    }
  }
}

TEST(BpeMerges, WithoutRulesNothingChanges) {
  Ids ids = {1, 2, 3};
  BpeMerges({}).apply(ids);
  EXPECT_EQ(ids, (Ids{1, 2, 3}));
}

}  // namespace
}  // namespace engine::data::detail

#include "engine/core/arena.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/core/error.hpp"

namespace engine {
namespace {

TEST(Arena, BlocksAreAlignedAndDisjoint) {
  Arena arena(std::size_t{256} << 20);
  std::mt19937 random(7);
  struct Block {
    std::byte* data;
    std::size_t bytes;
    Category category;
  };
  std::vector<Block> live;
  for (int round = 0; round < 4000; ++round) {
    if (live.size() > 50 || (!live.empty() && random() % 3 == 0)) {
      const std::size_t i = random() % live.size();
      for (std::size_t k = 0; k < live[i].bytes; k += 97) {
        ASSERT_EQ(live[i].data[k], static_cast<std::byte>(live[i].bytes));
      }
      arena.deallocate(live[i].data, live[i].bytes, live[i].category);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      const std::size_t bytes = 1 + random() % 300000;
      const auto category = static_cast<Category>(random() % kCategories);
      std::byte* data = arena.allocate(bytes, category);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % Arena::kAlignment, 0U);
      for (std::size_t k = 0; k < bytes; ++k) data[k] = static_cast<std::byte>(bytes);
      live.push_back({data, bytes, category});
    }
  }
  for (const Block& b : live) arena.deallocate(b.data, b.bytes, b.category);
  EXPECT_EQ(arena.meter().stats().total.now_bytes, 0);
}

TEST(Arena, RepeatedStepsTakeNothingFromTheSystem) {
  Arena arena(std::size_t{1} << 30);
  const auto step = [&] {
    std::vector<std::pair<std::byte*, std::size_t>> blocks;
    for (std::size_t i = 1; i < 60; ++i) {
      blocks.emplace_back(arena.allocate(i * 70001, Category::activations), i * 70001);
    }
    for (auto [data, bytes] : blocks) arena.deallocate(data, bytes, Category::activations);
  };
  step();
  const auto committed = arena.meter().stats().committed_bytes;
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(arena.meter().stats().committed_bytes, committed);
}

TEST(Arena, ExhaustionIsAnErrorAndLeavesTheArenaUsable) {
  Arena arena(std::size_t{4} << 20);
  try {
    arena.allocate(std::size_t{1} << 30, Category::gradients);
    FAIL() << "expected out of memory";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("gradients"), std::string::npos);
  }
  std::byte* block = arena.allocate(1000, Category::gradients);
  arena.deallocate(block, 1000, Category::gradients);
}

TEST(Arena, CategoriesAreMeasured) {
  Arena arena(std::size_t{64} << 20);
  std::byte* a = arena.allocate(1000, Category::optimizer);
  std::byte* b = arena.allocate(64, Category::workspace);
  arena.deallocate(a, 1000, Category::optimizer);
  const MemoryStats stats = arena.meter().stats();
  EXPECT_EQ(stats.categories[static_cast<std::size_t>(Category::optimizer)].now_bytes, 0);
  EXPECT_EQ(stats.categories[static_cast<std::size_t>(Category::optimizer)].peak_bytes, 1024);
  EXPECT_EQ(stats.total.now_bytes, 64);
  EXPECT_EQ(stats.total.peak_bytes, 1088);
  arena.deallocate(b, 64, Category::workspace);
}

}  // namespace
}  // namespace engine

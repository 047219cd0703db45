#include "engine/core/log.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace engine {
namespace {

TEST(Logger, PrefixesTheRankAndFiltersByLevel) {
  std::vector<std::string> lines;
  const Logger log({.level = LogLevel::info,
                    .rank = 2,
                    .world_size = 4,
                    .sink = [&](LogLevel, std::string_view line) { lines.emplace_back(line); }});
  log.info("step {}", 3);
  log.debug("hidden");
  log.warning("careful");
  EXPECT_EQ(lines, (std::vector<std::string>{"[r2/4] step 3", "[r2/4] warning: careful"}));
}

}  // namespace
}  // namespace engine

#include "engine/core/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace engine::philox {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(generate(0, 0, 0), (Block{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  EXPECT_EQ(generate(~Key{0}, ~0ULL, ~0ULL),
            (Block{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  EXPECT_EQ(generate(0x299f31d0a4093822ULL, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (Block{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}));
}

TEST(Philox, StreamsDifferByNameAndSeed) {
  EXPECT_NE(key(1, "a"), key(1, "b"));
  EXPECT_NE(key(1, "a"), key(2, "a"));
  EXPECT_EQ(word(key(1, "a"), 7), generate(key(1, "a"), 1)[3]);
}

TEST(Philox, NormalsHaveTheRightMoments) {
  const Key k = key(3, "moments");
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = normal(k, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

}  // namespace
}  // namespace engine::philox

#include "engine/train/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "engine/core/error.hpp"

namespace engine::train {
namespace {

const std::vector<float> kLogits = {std::log(1.0F), std::log(4.0F), std::log(3.0F), std::log(2.0F)};

std::map<std::int32_t, double> shares(const Sampler::Options& options) {
  Sampler sampler(options);
  std::map<std::int32_t, double> count;
  constexpr int kPicks = 20000;
  for (int i = 0; i < kPicks; ++i) count[sampler.pick(kLogits)] += 1.0 / kPicks;
  return count;
}

TEST(Sampler, FollowsTheProbabilities) {
  const auto got = shares({.seed = 3});
  for (int id = 0; id < 4; ++id) {
    EXPECT_NEAR(got.at(id), std::exp(kLogits[static_cast<std::size_t>(id)]) / 10, 0.015);
  }
}

TEST(Sampler, TemperatureSharpensAndZeroIsGreedy) {
  EXPECT_NEAR(shares({.temperature = 0.5}).at(1), 16.0 / 30, 0.015);
  EXPECT_EQ(shares({.temperature = 0}).size(), 1U);
  EXPECT_EQ(Sampler({.temperature = 0}).pick(std::vector<float>{1, 2, 2}), 1);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const auto k = shares({.top_k = 2});
  EXPECT_EQ(k.size(), 2U);
  EXPECT_NEAR(k.at(1), 4.0 / 7, 0.015);
  const auto p = shares({.top_p = 0.75});  // 4 + 3 + 2 of 10 pass 0.75
  EXPECT_EQ(p.size(), 3U);
  EXPECT_EQ(shares({.top_p = 1e-9}).size(), 1U);
}

TEST(Sampler, ASeedGivesOneSequence) {
  const auto sequence = [](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.pick(kLogits));
    return ids;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, NonFiniteLogitsAreNeverPicked) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Sampler sampler({});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sampler.pick(std::vector<float>{kNan, -kInf, 1.0F, kNan}), 2);
  }
  EXPECT_THROW(sampler.pick(std::vector<float>{kNan, kNan}), Error);
  EXPECT_THROW(sampler.pick(std::vector<float>{-kInf}), Error);
}

TEST(Sampler, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace engine::train

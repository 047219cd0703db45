#include "engine/optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "engine/optim/clip.hpp"

namespace engine::optim {
namespace {

LrSchedule schedule(ScheduleKind kind, std::int64_t warmup, std::int64_t horizon,
                    std::int64_t cooldown = 0) {
  return {.kind = kind,
          .lr = 2e-3,
          .min_lr = 2e-4,
          .warmup_steps = warmup,
          .decay_steps = horizon,
          .cooldown_steps = cooldown,
          .total_steps = horizon};
}

TEST(Schedule, CosineFollowsTheReferenceFormula) {
  const LrSchedule s = schedule(ScheduleKind::cosine, 3, 12);
  for (int step = 0; step < 12; ++step) {
    const double expected =
        step < 3 ? 2e-3 * (step + 1) / 3
                 : 2e-4 + (2e-3 - 2e-4) / 2 * (1 + std::cos(std::numbers::pi * (step - 3) / 9.0));
    EXPECT_DOUBLE_EQ(s.at(step), expected) << step;
  }
  EXPECT_EQ(s.at(3), 2e-3);
  EXPECT_EQ(s.at(12), 2e-4);
  EXPECT_EQ(s.at(1000000), 2e-4);
}

TEST(Schedule, LinearReachesTheFloorAtTheHorizon) {
  const LrSchedule s = schedule(ScheduleKind::linear, 2, 12);
  EXPECT_DOUBLE_EQ(s.at(0), 1e-3);
  EXPECT_DOUBLE_EQ(s.at(1), 2e-3);
  EXPECT_DOUBLE_EQ(s.at(2), 2e-3);
  EXPECT_DOUBLE_EQ(s.at(7), 1.1e-3);
  EXPECT_DOUBLE_EQ(s.at(11), 2e-4 + 1.8e-4);
  EXPECT_EQ(s.at(12), 2e-4);
  EXPECT_EQ(s.at(13), 2e-4);
}

TEST(Schedule, WsdHoldsThenCoolsDown) {
  const LrSchedule s = schedule(ScheduleKind::wsd, 2, 20, 4);
  EXPECT_DOUBLE_EQ(s.at(0), 1e-3);
  for (int step = 1; step <= 16; ++step) EXPECT_EQ(s.at(step), 2e-3) << step;
  EXPECT_DOUBLE_EQ(s.at(17), 2e-3 - 0.25 * 1.8e-3);
  EXPECT_DOUBLE_EQ(s.at(19), 2e-3 - 0.75 * 1.8e-3);
  EXPECT_EQ(s.at(20), 2e-4);
  EXPECT_EQ(schedule(ScheduleKind::wsd, 2, 20, 0).at(19), 2e-3);
  // A cool-down longer than what the warm-up leaves starts at its end, from the full rate.
  const LrSchedule tight = schedule(ScheduleKind::wsd, 15, 20, 10);
  EXPECT_EQ(tight.at(15), 2e-3);
  EXPECT_EQ(tight.at(20), 2e-4);
}

TEST(Schedule, ConstantStays) {
  const LrSchedule s = schedule(ScheduleKind::constant, 0, 12);
  EXPECT_EQ(s.at(0), 2e-3);
  EXPECT_EQ(s.at(1 << 20), 2e-3);
}

TEST(Schedule, RisesThenFallsAndStaysFiniteForAnyLengths) {
  for (const auto kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    for (const int warmup : {0, 1, 2, 7, 10, 11, 30}) {
      for (const int horizon : {0, 1, 2, 10, 11}) {
        for (const int cooldown : {0, 1, 3, 10, 40}) {
          const LrSchedule s = schedule(kind, warmup, horizon, cooldown);
          double previous = 0;
          for (int step = 0; step < 50; ++step) {
            const double rate = s.at(step);
            ASSERT_TRUE(std::isfinite(rate));
            ASSERT_GT(rate, 0);
            ASSERT_LE(rate, 2e-3);
            if (step < warmup) {
              ASSERT_GT(rate, previous);
            } else if (step > warmup) {
              ASSERT_LE(rate, previous);
              ASSERT_GE(rate, 2e-4);
            }
            previous = rate;
          }
        }
      }
    }
  }
}

TEST(Schedule, NoJumpIsLargerThanTheSteepestSlope) {
  for (const auto kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const LrSchedule s = schedule(kind, 100, 1000, 200);
    for (int step = 100; step < 1100; ++step) {
      EXPECT_LE(s.at(step) - s.at(step + 1), 1.8e-3 / 200 + 1e-12);
    }
  }
}

TEST(Clip, ScalesOnlyAboveTheLimit) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0), 1.0);
}

}  // namespace
}  // namespace engine::optim

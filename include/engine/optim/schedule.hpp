#pragma once
// Learning-rate schedules: pure functions of the step.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace engine::optim {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };

/// The kind of a name as in `lr_schedule.kind`; nothing for an unknown name.
constexpr std::optional<ScheduleKind> parse_schedule_kind(std::string_view name) noexcept {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "wsd") return ScheduleKind::wsd;
  return std::nullopt;
}

/// Learning rate as a function of the step, which counts from 0. All kinds begin with a linear
/// warm-up lr * (s + 1) / warmup_steps. Then
///   constant: lr;
///   linear, cosine: from lr at warmup_steps to min_lr at decay_steps, and min_lr from there on;
///   wsd: lr, then linear to min_lr over the cooldown_steps before total_steps (a cool-down that
///   would begin inside the warm-up begins at its end; cooldown_steps = 0: none).
/// Source: Loshchilov and Hutter, "SGDR", 2017 (cosine); Hu et al., "MiniCPM", 2024 (wsd).
struct LrSchedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 0;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;     ///< linear, cosine
  std::int64_t cooldown_steps = 0;  ///< wsd
  std::int64_t total_steps = 0;     ///< wsd

  double at(std::int64_t step) const noexcept {
    if (step < warmup_steps) {
      return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    }
    switch (kind) {
      case ScheduleKind::constant:
        break;
      case ScheduleKind::linear:
        return interpolate(progress(step, warmup_steps, decay_steps));
      case ScheduleKind::cosine: {
        const double t = progress(step, warmup_steps, decay_steps);
        if (t >= 1.0) return min_lr;
        return min_lr + (lr - min_lr) / 2 * (1 + std::cos(3.14159265358979323846 * t));
      }
      case ScheduleKind::wsd:
        if (cooldown_steps <= 0) break;
        return interpolate(
            progress(step, std::max(total_steps - cooldown_steps, warmup_steps), total_steps));
    }
    return lr;
  }

 private:
  double interpolate(double t) const noexcept { return t >= 1.0 ? min_lr : lr + (min_lr - lr) * t; }
  /// Part of [begin, end) that lies before `step`, in [0, 1].
  static double progress(std::int64_t step, std::int64_t begin, std::int64_t end) noexcept {
    if (step >= end) return 1;
    if (step <= begin) return 0;
    return static_cast<double>(step - begin) / static_cast<double>(end - begin);
  }
};

}  // namespace engine::optim

#include "engine/train/progress.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace engine::train {
namespace {

constexpr double kLogLineSeconds = 2.0;

std::string scaled(double value, double base, std::initializer_list<const char*> suffixes,
                   const char* space) {
  auto suffix = suffixes.begin();
  while (value >= base && suffix + 1 != suffixes.end()) {
    value /= base;
    ++suffix;
  }
  const char* precision = value < 10 && suffix != suffixes.begin() ? "{:.1f}{}{}" : "{:.0f}{}{}";
  return fmt::format(fmt::runtime(precision), value, space, *suffix);
}

}  // namespace

std::string format_bytes(double bytes) {
  return scaled(bytes, 1000, {"B", "kB", "MB", "GB", "TB"}, " ");
}

std::string format_count(double count) { return scaled(count, 1000, {"", "k", "M", "G"}, ""); }

std::string format_duration(double seconds) {
  const auto s = static_cast<long>(std::lround(seconds));
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

Progress::Progress(const Logger& log, std::int64_t total_steps, double peak_gflops, bool quiet)
    : log_(log),
      total_steps_(total_steps),
      peak_gflops_(peak_gflops),
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { finish_line(); }

void Progress::finish_line() {
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

void Progress::step(const StepRecord& r, double gflops) {
  smoothed_ms_ = smoothed_ms_ == 0 ? r.step_ms : 0.9 * smoothed_ms_ + 0.1 * r.step_ms;
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool first_or_last = r.step == 0 || r.step + 1 == total_steps_;
  const std::chrono::duration<double> since = now - last_line_;
  if (!terminal_ && !first_or_last && !r.skipped && since.count() < kLogLineSeconds) return;
  last_line_ = now;
  const double left = static_cast<double>(total_steps_ - r.step - 1) * smoothed_ms_ / 1e3;
  std::string text = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:>5} tok/s  {:>3.0f}% of peak  {}  "
      "eta {}",
      r.step + 1, std::to_string(total_steps_).size(), total_steps_, r.loss, r.grad_norm, r.lr,
      format_count(r.tokens_per_s), peak_gflops_ > 0 ? 100 * gflops / peak_gflops_ : 0.0,
      format_bytes(static_cast<double>(r.mem_peak_bytes)), format_duration(left));
  if (r.skipped) text += "  SKIPPED";
  if (terminal_) {
    std::fputs(("\r\x1b[K" + text).c_str(), stderr);
    std::fflush(stderr);
    line_open_ = true;
    if (r.skipped || r.step + 1 == total_steps_) finish_line();
  } else {
    log_.info("{}", text);
  }
}

void Progress::event(const std::string& text) {
  if (quiet_) return;
  finish_line();
  log_.info("{}", text);
}

}  // namespace engine::train

#pragma once
#include <chrono>
#include <string>

#include "engine/core/log.hpp"
#include "engine/train/metrics.hpp"

namespace engine::train {

/// "1.5 GB", "312 MB": decimal units, as disks and networks count.
std::string format_bytes(double bytes);
/// "12.4k", "3.1M".
std::string format_count(double count);
/// "1h02m", "3m05s", "8s".
std::string format_duration(double seconds);

/// The line a person watches: rewritten in place on a terminal, a line now and then in a log.
class Progress {
 public:
  /// `peak_gflops` is the machine's measured peak, for the share of it that a step reaches.
  Progress(const Logger& log, std::int64_t total_steps, double peak_gflops, bool quiet);
  ~Progress();

  /// `gflops` is what the step's matrix products came to.
  void step(const StepRecord& record, double gflops);
  /// A line of its own, for events between steps.
  void event(const std::string& text);

 private:
  void finish_line();

  Logger log_;
  std::int64_t total_steps_;
  double peak_gflops_;
  bool quiet_;
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point last_line_;
  double smoothed_ms_ = 0;
};

}  // namespace engine::train

#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace engine::train {

/// What one training step reports.
struct StepRecord {
  std::int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;   ///< consumed so far, this step included
  std::int64_t samples = 0;  ///< likewise
  std::int64_t targets = 0;  ///< of this step
  bool skipped = false;
  double step_ms = 0;
  double tokens_per_s = 0;
  std::int64_t mem_peak_bytes = 0;       ///< of the largest rank
  std::int64_t comm_bytes = 0;           ///< sent on the wire, all ranks
  double comm_exposed_ms = 0;            ///< compute waited for communication, largest rank
  std::vector<std::int64_t> sample_ids;  ///< only when asked for
};

/// metrics.jsonl: one JSON object a line, flushed line by line. Non-finite numbers are null.
class MetricsFile {
 public:
  /// Opens `path` for appending after cutting off records at or past `first_step`, and a last line
  /// that is not whole. A fresh run (`first_step` 0) keeps an earlier run's file as NAME.previous.
  /// Creates parent directories. Throws Errc::io; Errc::invalid_argument for a file that holds
  /// something else.
  MetricsFile(const std::string& path, std::int64_t first_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Throws Errc::io.
  void write(const StepRecord& record);
  void write_evaluation(std::int64_t step, double eval_loss);

 private:
  void write_line(const std::string& line);

  std::string path_;
  int fd_ = -1;
};

}  // namespace engine::train

#pragma once
#include <atomic>
#include <string>

#include "engine/train/run_plan.hpp"

namespace engine::train {

/// How a run starts from what is in the checkpoint directory.
struct ResumeMode {
  enum class Kind : std::uint8_t {
    none,       ///< start fresh; a directory that already holds a run is an error
    automatic,  ///< the newest checkpoint that verifies, or fresh if there is none
    path,       ///< this one
  } kind = Kind::none;
  std::string path;

  /// "auto", "none" or a path.
  static ResumeMode parse(const std::string& text);
};

struct TrainOptions {
  ResumeMode resume;
  std::string trace;                        ///< Perfetto JSON of the first steps; empty: off
  std::int64_t profile_steps = 0;           ///< after two steps, profile this many; print; stop
  bool quiet = false;                       ///< only errors on stderr
  const std::atomic<bool>* stop = nullptr;  ///< set from a signal: save and stop after this step
};

/// How a run ended.
enum class Outcome : std::uint8_t {
  finished,
  stopped,  ///< early, on request; resumable
};

/// Trains as planned: progress on stderr, metrics, evaluation, checkpoints. Throws engine::Error;
/// Errc::diverged after more than guard.max_skips non-finite steps in a row.
Outcome train(const RunPlan& plan, const TrainOptions& options);

/// What `--dry-run` prints: model, step program, and memory by category, measured by running a step
/// on the meta device. Takes no memory for tensors and reads no tokens.
std::string describe(const RunPlan& plan);

}  // namespace engine::train

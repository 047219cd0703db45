#pragma once
// The checkpoints of a run on disk: which one to resume from, where the next one goes, which go.
#include <filesystem>
#include <optional>
#include <string>

#include "engine/checkpoint/training_state.hpp"
#include "engine/core/log.hpp"
#include "engine/train/session.hpp"

namespace engine::train::detail {

/// checkpoint.dir while a run uses it, on rank 0. Holds a lock; damaged checkpoints are set aside,
/// never removed.
class CheckpointFolder {
 public:
  /// Makes the folder, locks it and removes what killed saves left.
  /// Throws Errc::io; Errc::invalid_argument while another run holds the lock.
  CheckpointFolder(const std::string& directory, Logger log);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Throws Errc::invalid_argument if the folder already holds checkpoints.
  void require_empty() const;
  /// Throws Errc::invalid_argument if going on from `path` at `step` would mix two runs'
  /// checkpoints.
  void require_continues(const std::filesystem::path& path, std::int64_t step) const;
  /// The newest checkpoint whose checksums hold; damaged ones are set aside. Nothing if there are
  /// no checkpoints. Throws Errc::corrupt_data if there are some and none holds.
  std::optional<std::filesystem::path> newest();

  /// Whether `step` was not yet saved or resumed from here.
  bool needs(std::int64_t step) const noexcept { return step != saved_step_; }
  /// Saves the session; then removes all but the `keep` newest. Returns the path.
  std::filesystem::path save(Session& session, checkpoint::RunInfo info, std::int64_t keep);
  /// The run goes on from `step`: if that checkpoint lies here, it need not be saved again.
  void resumed_at(std::int64_t step);

 private:
  void set_aside(const std::filesystem::path& path, std::string_view why);

  std::filesystem::path directory_;
  Logger log_;
  int lock_ = -1;
  std::int64_t saved_step_ = -1;
};

}  // namespace engine::train::detail

#pragma once
#include <memory>

#include "engine/core/device_context.hpp"

namespace engine::parallel {

/// Everything a rank owns and uses. Ranks may be threads of one process, so nothing of a run lives
/// outside its rank's context.
class RankContext {
 public:
  struct Options {
    DeviceContext::Options device;
    int rank = 0;
    int world_size = 1;  ///< this version runs one rank; more are refused
  };

  /// Throws Errc::invalid_argument for a device or world that this build does not have.
  explicit RankContext(const Options& options);

  DeviceContext& device() noexcept { return *device_; }
  int rank() const noexcept { return options_.rank; }
  int world_size() const noexcept { return options_.world_size; }
  const Logger& log() const noexcept { return device_->log(); }

 private:
  Options options_;
  std::unique_ptr<DeviceContext> device_;
};

}  // namespace engine::parallel

#pragma once
#include <cstdint>
#include <span>

#include "engine/core/philox.hpp"

namespace engine::train {

/// Picks tokens from logits. Deterministic in (options, seed, number of picks before).
class Sampler {
 public:
  struct Options {
    double temperature = 1.0;  ///< 0: the likeliest, the lowest id among equals
    std::int64_t top_k = 0;    ///< 0: off
    double top_p = 1.0;        ///< 1: off
    std::uint64_t seed = 0;
  };

  /// Throws Errc::invalid_argument for values that make no sense.
  explicit Sampler(const Options& options);

  /// Shapes: logits [V]. Throws Errc::corrupt_data when no logit is finite.
  std::int32_t pick(std::span<const float> logits);

 private:
  Options options_;
  philox::Key key_;
  std::uint64_t picks_ = 0;
};

}  // namespace engine::train

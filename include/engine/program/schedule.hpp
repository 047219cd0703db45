#pragma once
// Which micro-batch a pipeline stage works on next. Pure tables; planners turn them into programs.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace engine::program {

/// One entry of a stage's schedule.
struct Slot {
  enum class Kind : std::uint8_t { forward, backward } kind = Kind::forward;
  int micro = 0;

  bool operator==(const Slot&) const = default;
};

/// One-forward-one-backward: `stages - stage - 1` warm-up forwards, then alternation, then the
/// remaining backwards. At most stages - stage micro-batches are in flight.
/// Source: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", 2021.
inline std::vector<Slot> one_forward_one_backward(int stages, int stage, int micros) {
  std::vector<Slot> table;
  const int warm_up = std::min(stages - stage - 1, micros);
  for (int m = 0; m < warm_up; ++m) table.push_back({Slot::Kind::forward, m});
  for (int m = warm_up; m < micros; ++m) {
    table.push_back({Slot::Kind::forward, m});
    table.push_back({Slot::Kind::backward, m - warm_up});
  }
  for (int m = micros - warm_up; m < micros; ++m) table.push_back({Slot::Kind::backward, m});
  return table;
}

}  // namespace engine::program

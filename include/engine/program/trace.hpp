#pragma once
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace engine::program {

/// One executed (or simulated) instruction on a rank's timeline.
struct TraceEvent {
  Instruction instruction;
  double begin_ms = 0;
  double end_ms = 0;
};

/// Timelines of some steps of one rank.
struct Trace {
  int rank = 0;
  std::vector<TraceEvent> events;

  /// Writes Chrome/Perfetto trace JSON. Throws Errc::io.
  void write(const std::string& path, const ModelInfo& model) const;
};

}  // namespace engine::program

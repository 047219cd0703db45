#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace engine::program {

/// One executed (or simulated) instruction on a rank's timeline.
struct TraceEvent {
  Instruction instruction;
  double begin_ms = 0;
  double end_ms = 0;
  Lane lane = Lane::compute;
  bool wait = false;  ///< the compute lane waited for this instruction of another lane
  double flops = 0;   ///< of matrix products in it
};

/// Timelines of some steps of one rank.
struct Trace {
  int rank = 0;
  std::vector<TraceEvent> events;

  /// Milliseconds that a lane was busy (waits left out).
  double busy_ms(Lane lane) const;
};

/// Chrome/Perfetto trace JSON: a process for each rank, a thread for each lane.
std::string to_json(std::span<const Trace> traces, const ModelInfo& model);

}  // namespace engine::program

#pragma once
// What a run will take, found by running a step on the meta device.
#include <string>

#include "engine/train/run_plan.hpp"

namespace engine::train::detail {

/// What rank `rank` is made from. CPU threads are split evenly over the ranks of this process.
parallel::RankContext::Options rank_options(const RunPlan& plan, int rank, bool quiet);

/// What one step takes and does on a rank; all ranks are alike.
struct Prediction {
  MemoryStats memory;
  double flops = 0;
  std::int64_t parameters = 0;
  std::int64_t sent_bytes = 0;  ///< on the wire
  std::string program;          ///< summary
  double step_ms = 0;           ///< 0 without a machine to run on
  double exposed_ms = 0;
};

/// What a rank's threads reach.
struct Machine {
  double flops_per_ms = 0;
  double copy_bytes_per_ms = 0;
};

/// Measured with matrix products and copies of the plan's sizes, for a fraction of a second.
Machine measure_machine(const RunPlan& plan);

Prediction predict(const RunPlan& plan, const Machine* machine = nullptr);

/// Memory that the system can give without swapping, or 0 if it does not say.
std::int64_t available_memory_bytes();

}  // namespace engine::train::detail

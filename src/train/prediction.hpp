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
  std::string program;
};

Prediction predict(const RunPlan& plan);

/// Memory that the system can give without swapping, or 0 if it does not say.
std::int64_t available_memory_bytes();

}  // namespace engine::train::detail

#pragma once
// What a run will take, found by running a step on the meta device.
#include <string>

#include "engine/train/run_plan.hpp"

namespace engine::train::detail {

/// The rank that a plan runs on.
parallel::RankContext::Options rank_options(const RunPlan& plan, bool quiet);

/// What one step takes and does.
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

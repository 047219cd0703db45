#pragma once
// The ranks of a run: threads of this process, or this process as one of many.
#include "engine/comm/world.hpp"
#include "engine/core/function_ref.hpp"
#include "engine/train/run_plan.hpp"

namespace engine::train::detail {

/// Runs `body` for every rank that lives in this process and returns when all have ended: one rank
/// when a launcher started this process, else all of the layout as threads.
/// Throws what the rank that failed first threw; Errc::invalid_argument when a launcher's world
/// does not fit the layout.
void run_ranks(const RunPlan& plan, FunctionRef<void(comm::World&)> body);

/// Ranks of the layout that live in this process.
int local_ranks(const RunPlan& plan);
/// CPU threads of each of them: train.threads, or this process's share of the CPUs, split evenly.
int threads_of_rank(const RunPlan& plan);

}  // namespace engine::train::detail

#pragma once
#include "engine/program/costs.hpp"
#include "engine/program/executor.hpp"

namespace engine::program {

/// What a program is predicted to take on a rank whose peers are all alike.
struct Simulation {
  Trace trace;  ///< of the last step, from its own beginning
  double step_ms = 0;
  double exposed_ms = 0;  ///< compute waited for transfers
};

/// Runs a program in model time, by the executor's rules for what waits for what. The step that is
/// reported follows others of its kind, so work that crosses the boundary counts where it falls.
/// Of `options`, what decides about waiting is used.
Simulation simulate(const Program& program, const ModelInfo& model, const Costs& costs,
                    const ExecutorOptions& options = {});

}  // namespace engine::program

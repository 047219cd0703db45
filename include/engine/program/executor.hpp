#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/nn/block.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/parallel/unit.hpp"
#include "engine/program/program.hpp"
#include "engine/program/trace.hpp"

namespace engine::program {

/// What a run of a program is given.
struct StepInputs {
  std::span<const nn::MicroBatch> micros;
  double lr = 0;
  std::int64_t optimizer_step = 1;  ///< counts optimizer steps, from 1: bias correction
  double clip_grad_norm = 0;        ///< 0: off
};

struct StepResult {
  double loss = 0;           ///< mean over the step's targets; 0 when there are none
  std::int64_t targets = 0;  ///< counted over all micro-batches
  double grad_norm = 0;      ///< before clipping, over the whole model
  bool skipped = false;      ///< no optimizer step: no targets, or a non-finite loss or norm
};

/// Runs programs on one rank's model, in order, on the rank's thread.
class Executor {
 public:
  /// All arguments must outlive the executor; `optimizer` may be null if no program steps it.
  Executor(DeviceContext& device, nn::Model& model, std::span<parallel::Unit> units,
           const optim::Optimizer* optimizer);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Complete on return. When a step is skipped, weights and moments are untouched. An exception
  /// leaves the weights as they were before the optimizer's first unit.
  StepResult run(const Program& program, const StepInputs& inputs, Trace* trace = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::program

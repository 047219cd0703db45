#pragma once
#include <memory>
#include <span>

#include "engine/nn/block.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/parallel/rank_context.hpp"
#include "engine/parallel/unit.hpp"
#include "engine/program/costs.hpp"
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
  std::int64_t targets = 0;  ///< counted over all micro-batches of all ranks
  double grad_norm = 0;      ///< before clipping, over the whole model
  bool skipped = false;      ///< no optimizer step: no targets, or a non-finite loss or norm
  double exposed_ms = 0;     ///< time this rank's compute waited for communication
};

struct ExecutorOptions {
  /// Every transfer is waited for where it is issued, so that nothing overlaps: for comparison.
  bool wait_at_issue = false;
  /// Whole gradients that may wait for their reduction before backward waits.
  int reductions_in_flight = 2;
  /// Instead of computing, sleeps as long as an instruction is said to take. For a model on the
  /// meta device in a real world.
  const Costs* sleep = nullptr;
};

/// Runs programs on one rank's model. The rank's thread walks the program: it computes, and hands
/// transfers to the data lane, waiting for one only when an instruction reads what it brings.
class Executor {
 public:
  /// All arguments must outlive the executor; `optimizer` may be null if no program steps it.
  Executor(parallel::RankContext& rank, nn::Model& model, const ModelInfo& info,
           std::span<parallel::Unit> units, const optim::Optimizer* optimizer,
           const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Collective: all ranks. Complete on return, but for gathers that the next program begins with.
  /// When a step is skipped, weights and moments are untouched. An exception leaves the weights as
  /// they were before the optimizer's first unit.
  StepResult run(const Program& program, const StepInputs& inputs, Trace* trace = nullptr);

  /// Calls `body` while the values of the units of block `block` can be read. Collective.
  void with_values(int block, FunctionRef<void()> body);
  /// To be called after master weights were written from outside: values are gathered anew.
  void values_changed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::program

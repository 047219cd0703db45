#pragma once
// A training step as a list of instructions that can be read, checked, timed and run.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace engine::program {

enum class Op : std::uint8_t {
  count_targets,    ///< targets of the step, which normalise loss and gradients
  forward,          ///< block on micro-batch
  recompute,        ///< forward again, recording, just before backward
  backward,         ///< both parts of backward at once
  backward_input,   ///< input gradients, and the cheap gradients of norms and biases
  backward_weight,  ///< weight gradients of matrix products
  reduce_metrics,   ///< loss of the step
  gradient_norm,    ///< over all units, before clipping
  optimizer_step,   ///< unit
};

/// Name as printed, for example "Forward".
std::string_view name(Op op) noexcept;

/// One thing a rank does. Fields that an op does not use are -1.
struct Instruction {
  Op op = Op::forward;
  int block = -1;
  int unit = -1;
  int micro = -1;
  bool record = false;  ///< forward keeps what backward needs; else only the block's input is kept

  bool operator==(const Instruction&) const = default;
  /// For example "Forward block 3 micro 0".
  std::string str() const;
};

/// What a planner, verifier or executor needs to know of a model.
struct ModelInfo {
  struct BlockInfo {
    std::string name;
    std::vector<int> units;  ///< units that hold the block's parameters
    bool makes_loss = false;
  };
  std::vector<BlockInfo> blocks;
  std::vector<std::string> units;  ///< names
};

enum class Recompute : std::uint8_t { none, full };

/// The instructions of one rank, in the order of its compute lane.
struct Program {
  std::vector<Instruction> code;
  int micros = 0;
  bool training = true;

  /// One line per run of alike instructions, for people.
  std::string summary(const ModelInfo& model) const;
};

/// What decides the program of a training step.
struct StepPlan {
  int micros = 1;
  Recompute recompute = Recompute::none;
  bool split_backward = false;  ///< input and weight parts as instructions of their own
};

/// A training step: forward and backward of every micro-batch, norm, optimizer.
Program plan_step(const ModelInfo& model, const StepPlan& plan);

/// Forward only, for evaluation.
Program plan_evaluation(const ModelInfo& model, int micros);

}  // namespace engine::program

#pragma once
// A training step as a list of instructions that can be read, checked, timed and run.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace engine::program {

enum class Op : std::uint8_t {
  gather,           ///< unit: its values become whole
  release,          ///< unit: its whole values go
  count_targets,    ///< targets of the step, which normalise loss and gradients
  forward,          ///< block on micro-batch
  recompute,        ///< forward again, recording, just before backward
  backward,         ///< both parts of backward at once
  backward_input,   ///< input gradients, and the cheap gradients of norms and biases
  backward_weight,  ///< weight gradients of matrix products
  reduce_gradient,  ///< unit: what backward wrote is summed over ranks
  reduce_metrics,   ///< loss of the step
  gradient_norm,    ///< over all units, before clipping
  optimizer_step,   ///< unit
};

/// Name as printed, for example "Forward".
std::string_view name(Op op) noexcept;

/// What runs beside what. Instructions of a lane run in order.
enum class Lane : std::uint8_t {
  compute,  ///< the rank's own thread
  data,     ///< gathers and reductions
};
inline constexpr int kLanes = 2;

std::string_view name(Lane lane) noexcept;
Lane lane_of(Op op) noexcept;

/// One thing a rank does. Fields that an op does not use are -1.
struct Instruction {
  Op op = Op::forward;
  int block = -1;
  int unit = -1;
  int micro = -1;
  bool record = false;  ///< forward keeps what backward needs; else only the block's input is kept
  bool last = false;    ///< reduce_gradient: the unit's last one of the step

  static Instruction on_unit(Op op, int unit) {
    Instruction i;
    i.op = op;
    i.unit = unit;
    return i;
  }

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
    bool backward_reads_weights = true;
  };
  std::vector<BlockInfo> blocks;
  std::vector<std::string> units;  ///< names
};

enum class Recompute : std::uint8_t { none, full };

/// Which buffers of units exist only while they are used, as the ZeRO stage has it.
struct Buffers {
  bool sharded = false;           ///< there are ranks to reduce with
  bool sharded_state = false;     ///< an optimizer step makes a shard of the values (stages 1-3)
  bool pooled_values = false;     ///< whole values live from gather to release (stage 3)
  bool pooled_gradients = false;  ///< whole gradients live from the first writer to the reduction

  bool operator==(const Buffers&) const = default;
};

/// The instructions of one rank, in the order in which its thread issues them.
struct Program {
  std::vector<Instruction> code;
  int micros = 0;
  bool training = true;
  Buffers buffers;
  /// Units whose pooled values are whole, or on their way, at entry and at exit: work that crosses
  /// the step's boundary. All programs of a rank agree, so any may follow any.
  std::vector<int> resident;

  /// One line per run of alike instructions, for people; a bracket holds lines that take turns.
  std::string summary(const ModelInfo& model) const;
};

/// When a choice is made anew.
enum class Every : std::uint8_t { micro, step };

/// What decides where communication stands in a program.
struct ShardPlan {
  int zero_stage = 0;
  int data = 1;    ///< ranks that gradients are summed over
  int shards = 1;  ///< ranks that share the state
  Every gather = Every::micro;
  Every reduce = Every::micro;
  int prefetch_units = 1;  ///< gathers issued before the one that is waited for

  Buffers buffers() const noexcept {
    const auto from_stage = [&](int stage) { return shards > 1 && zero_stage >= stage; };
    return {data > 1, from_stage(1), from_stage(3), from_stage(2)};
  }
};

/// What decides the program of a training step.
struct StepPlan {
  int micros = 1;
  Recompute recompute = Recompute::none;
  bool split_backward = false;  ///< input and weight parts as instructions of their own
  ShardPlan sharding = {};
};

/// A training step: forward and backward of every micro-batch, gathers, reductions, norm,
/// optimizer.
Program plan_step(const ModelInfo& model, const StepPlan& plan);

/// Forward only, for evaluation.
Program plan_evaluation(const ModelInfo& model, int micros, const ShardPlan& sharding = {});

}  // namespace engine::program

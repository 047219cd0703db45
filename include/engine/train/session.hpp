#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/training_state.hpp"
#include "engine/nn/block.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/parallel/rank_context.hpp"
#include "engine/parallel/unit.hpp"
#include "engine/program/executor.hpp"

namespace engine::train {

struct SessionOptions {
  DType compute = DType::f32;  ///< f32 or bf16; master weights are f32
  optim::OptimizerConfig optimizer;
  DType moments = DType::f32;   ///< f32 or bf16
  double clip_grad_norm = 1.0;  ///< 0: off
  program::Recompute recompute = program::Recompute::none;
  int zero_stage = 0;
  program::Every gather = program::Every::micro;  ///< stage 3
  program::Every reduce = program::Every::micro;  ///< stages 2 and 3
  int prefetch_units = 1;                         ///< stage 3
  DType reduce_type = DType::f32;                 ///< of gradients on the wire: f32 or bf16
  program::ExecutorOptions executor;
  bool training = true;  ///< false: weights only, for evaluation and generation
};

using program::StepResult;

/// A model being trained on this rank: its weights or its share of them, optimizer state and step
/// programs. This is what a program that embeds the engine uses, and all that `train` uses.
/// All ranks of the world make the same calls in the same order.
class Session {
 public:
  /// Allocates everything and gives the weights their initial values. `rank` must outlive it.
  Session(parallel::RankContext& rank, nn::Model model, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// One optimizer step over this rank's micro-batches of consecutive samples; every rank brings as
  /// many. Loss and gradient are over all ranks' samples. A step without targets or with a
  /// non-finite loss or gradient is skipped: weights and moments stay bitwise as they were.
  StepResult step(std::span<const nn::MicroBatch> micros, double lr,
                  program::Trace* trace = nullptr);

  struct EvalResult {
    double loss = 0;
    std::int64_t targets = 0;
  };
  /// Mean loss over all ranks' micro-batches, without dropout or gradients.
  EvalResult evaluate(std::span<const nn::MicroBatch> micros);

  /// Runs the model forward for generation. Returns the boundary entry `output`, for a language
  /// model nn::kLogits. `cache` may be null (whole sequences).
  Tensor generate(const nn::MicroBatch& batch, nn::KvCache* cache, std::string_view output);

  /// A micro-batch on the session's device. Shapes: tokens, targets [rows, length].
  nn::MicroBatch make_batch(std::int64_t rows, std::int64_t length);

  /// Writes weights, moments and counters to the new directory `dir`, which is then whole or
  /// absent; rank 0 writes. `info` says what a training loop wants to find again; the session fills
  /// in what it knows.
  void save(const std::string& dir, checkpoint::RunInfo info = {});
  /// Reads what `save` wrote, with any layout, into a session with the same parameters and returns
  /// its info. Weights alone if this session does not train.
  /// Throws Errc::corrupt_data or Errc::io; checksums are verified before anything is changed.
  checkpoint::RunInfo load(const std::string& dir);

  /// Optimizer steps done; counts towards bias correction and is saved.
  std::int64_t optimizer_steps() const noexcept { return optimizer_steps_; }
  std::span<parallel::Unit> units() noexcept { return units_; }
  std::span<const parallel::Unit> units() const noexcept { return units_; }
  /// Trainable elements.
  std::int64_t parameter_count() const noexcept;
  const program::ModelInfo& model_info() const noexcept { return info_; }
  const optim::Optimizer& optimizer() const noexcept { return *optimizer_; }
  DeviceContext& device() noexcept { return rank_->device(); }
  DType compute() const noexcept { return options_.compute; }
  /// Calls `body` while the parameters of block `block` can be read, whatever the sharding.
  void with_values(int block, FunctionRef<void()> body) { executor_->with_values(block, body); }
  /// To be called after master weights were written through `units`.
  void weights_changed();
  parallel::RankContext& rank() noexcept { return *rank_; }
  /// The program that `step` runs for this many micro-batches.
  const program::Program& step_program(int micros);

 private:
  const program::Program& evaluation_program(int micros);
  program::ShardPlan shard_plan() const;

  parallel::RankContext* rank_;
  nn::Model model_;
  SessionOptions options_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<parallel::Unit> units_;
  program::ModelInfo info_;
  std::unique_ptr<program::Executor> executor_;
  std::map<int, program::Program> step_programs_;
  std::map<int, program::Program> evaluation_programs_;
  std::int64_t optimizer_steps_ = 0;
};

}  // namespace engine::train

#pragma once
// Runs single blocks of a model on single micro-batches, and keeps what lies between them.
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/nn/block.hpp"
#include "engine/program/program.hpp"

namespace engine::program::detail {

/// A named tensor at a boundary, outside any tape.
struct Named {
  std::string name;
  Tensor tensor;
};
using Boundary = std::vector<Named>;

/// A recorded block: its tape and what went in and came out.
struct Recording {
  std::unique_ptr<autograd::Tape> tape;
  std::vector<nn::BlockIO::Entry> inputs;
  std::vector<nn::BlockIO::Entry> outputs;
};

/// Boundaries, their gradients and recordings of the step in progress.
class BlockRunner {
 public:
  BlockRunner(DeviceContext& device, nn::Model& model) : device_(&device), model_(&model) {}

  /// A new step over `micros`; drops what an earlier one left.
  void begin(std::span<const nn::MicroBatch> micros, nn::Pass pass);
  /// Seeds of losses are 1 / targets from here on.
  void set_targets(std::int64_t targets) noexcept { targets_ = targets; }
  const nn::LossSums& losses() const noexcept { return losses_; }

  void forward(const Instruction& i);
  void recompute(const Instruction& i);
  /// With `split`, the weight parts wait for `backward_weight`.
  void backward_input(const Instruction& i, bool split);
  void backward_weight(const Instruction& i);

 private:
  using Key = std::pair<int, int>;  // block, micro

  Recording run_block(const Instruction& i, const Boundary& in, autograd::Tape::Mode mode);
  void keep(const Key& key, Recording r);

  DeviceContext* device_;
  nn::Model* model_;
  std::span<const nn::MicroBatch> micros_;
  nn::Pass pass_ = nn::Pass::train;
  std::int64_t targets_ = 0;
  nn::LossSums losses_;
  std::map<Key, Boundary> boundaries_;  // input of block, micro
  std::map<Key, Boundary> gradients_;   // gradient of that input
  std::map<Key, Recording> recordings_;
};

}  // namespace engine::program::detail

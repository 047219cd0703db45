#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/functions.hpp"
#include "engine/nn/batch.hpp"
#include "engine/nn/kv_cache.hpp"

namespace engine::nn {

enum class Pass : std::uint8_t { train, evaluate, generate };

/// Loss of one micro-batch, as its loss blocks report it.
struct LossSums {
  double loss = 0;  ///< summed over the targets; local losses add weight * value
};

/// What a block may know about the pass it runs in.
struct BlockContext {
  DeviceContext& device;
  const MicroBatch& batch;
  Pass pass = Pass::train;
  double grad_scale = 1;       ///< 1 / targets of the step: the seed of backward
  LossSums* losses = nullptr;  ///< where loss blocks add
  KvCache* cache = nullptr;    ///< generation only

  bool training() const noexcept { return pass == Pass::train; }
};

/// The tensors that cross block boundaries, by name. A block reads and replaces entries; those it
/// does not touch pass through, gradients included (skips).
class BlockIO {
 public:
  struct Entry {
    std::string name;
    autograd::Value value;
  };

  /// Throws Errc::internal when no block before set `name`.
  const autograd::Value& get(std::string_view name) const;
  void set(std::string_view name, autograd::Value value);
  void erase(std::string_view name);
  std::vector<Entry>& entries() noexcept { return entries_; }
  const std::vector<Entry>& entries() const noexcept { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// A piece of a model between two boundaries. `forward` must be pure in its inputs, parameter
/// values and context, because it may be replayed.
class Block {
 public:
  virtual ~Block() = default;

  virtual const std::string& name() const = 0;
  /// All parameters the block reads, shared ones included.
  virtual std::vector<autograd::Parameter*> parameters() = 0;
  virtual void forward(autograd::Tape& tape, BlockIO& io, const BlockContext& context) = 0;
  /// Loss blocks make their gradients in the training forward and are never recomputed.
  virtual bool makes_loss() const { return false; }
  /// Whether backward reads parameter values; sharded ones are gathered for it.
  virtual bool backward_reads_weights() const { return true; }
};

/// A model is its blocks in order.
using Model = std::vector<std::unique_ptr<Block>>;

/// Adds `weight * value` to the step's loss from inside a block, with its own gradient seed.
/// Shapes: value has one element. Weighted like a target: the step divides by its target count.
void add_loss(autograd::Tape& tape, const BlockContext& context, const autograd::Value& value,
              double weight);

}  // namespace engine::nn

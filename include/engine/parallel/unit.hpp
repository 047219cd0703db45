#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/autograd/parameter.hpp"
#include "engine/comm/communicator.hpp"
#include "engine/core/device_context.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/parallel/shard_layout.hpp"

namespace engine::parallel {

/// How a unit is spread over ranks.
struct Sharding {
  int zero_stage = 0;           ///< with one shard all stages are stage 0
  int shards = 1;               ///< ranks that share the state
  int shard = 0;                ///< of this rank
  bool whole_matrices = false;  ///< no shard boundary inside a hidden weight (Muon)
  DType wire = DType::f32;      ///< type in which gradients travel: f32 or bf16

  /// Weights stay whole between uses.
  bool keeps_values() const noexcept { return shards == 1 || zero_stage < 3; }
  /// Gradients stay whole until the step's last backward.
  bool keeps_gradients() const noexcept { return shards == 1 || zero_stage < 2; }
  /// Master weights and moments are whole.
  bool keeps_state() const noexcept { return shards == 1 || zero_stage < 1; }
};

/// What is gathered, reduced and stepped together: some parameters one after another in flat
/// buffers, cut into equal shards. What a rank holds between steps, by ZeRO stage:
///
///   stage  values (compute type)  gradients (f32)  master (f32) and moments
///   0      whole                  whole            whole
///   1      whole                  whole            shard
///   2      whole                  shard            shard
///   3      shard                  shard            shard
///
/// With f32 compute, master and values are the same memory where both exist. Whole buffers that a
/// stage does not keep come from the arena for as long as they are needed.
/// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models", 2020.
class Unit {
 public:
  /// Allocates the weights. `compute` is f32 or bf16. The parameters must outlive the unit.
  Unit(DeviceContext& device, std::string name, std::vector<autograd::Parameter*> parameters,
       DType compute, const Sharding& sharding = {});
  ~Unit();
  Unit(Unit&&) noexcept = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const noexcept { return name_; }
  const ShardLayout& layout() const noexcept { return layout_; }
  const Sharding& sharding() const noexcept { return sharding_; }
  std::span<autograd::Parameter* const> parameters() const noexcept { return parameters_; }
  /// Number of trainable elements, padding left out.
  std::int64_t numel() const noexcept;

  /// Initial values: a function of the device's seed, each parameter's name and an element's place
  /// in it only. Values that are kept whole need a gather afterwards.
  void initialise();
  /// Allocates gradients and optimizer state, zeroed; moments are f32 or bf16.
  void prepare_training(const optim::Optimizer& optimizer, DType moments);
  bool trains() const noexcept { return static_cast<bool>(gradient_); }

  /// Communication that is ready to run: memory is there, and the call touches nothing but it.
  using Transfer = std::function<void()>;

  // Values. `gather` makes them whole: when its transfer has run, parameters can be read.

  /// Binds the parameters to memory for the whole values; returns what fills it.
  Transfer gather(comm::Communicator& shards);
  /// Parameters can no longer be read. Does nothing where the values are kept whole.
  void release();
  bool resident() const noexcept { return static_cast<bool>(values_); }

  // Gradients. Backward writes whole buffers; `reduce` sums them over ranks into this rank's state.

  /// The reduced gradient of the step starts at nothing.
  void begin_step();
  /// Gives backward somewhere to write. The first gradient written to each parameter overwrites.
  void open_gradients();
  bool gradients_open() const noexcept { return open_; }
  /// Closes the buffer; the transfer adds its sum over the shard group to the reduced gradient.
  /// `last`: the step's last one, which also sums over replicas.
  Transfer reduce(comm::Communicator& shards, comm::Communicator& replicas, bool last);
  /// The same for a rank without peers: gradients are where they were written.
  void close_gradients();

  /// Of this rank's shard of the reduced gradient, in double and in a fixed order. The sum over the
  /// shard group is the unit's.
  double gradient_sum_of_squares();
  /// One optimizer step on this rank's state. Values kept whole need a gather afterwards.
  void step(const optim::Optimizer& optimizer, const optim::StepScalars& scalars);

  // This rank's state: flat tensors [state_numel], f32 master, reduced gradient and moments.

  /// First element of the state in the whole flat buffer.
  std::int64_t state_begin() const noexcept;
  const Tensor& master() const noexcept { return master_; }
  const Tensor& gradient() const noexcept { return gradient_; }
  const Tensor& moment(int k) const { return moments_[static_cast<std::size_t>(k)]; }
  int moments() const noexcept { return static_cast<int>(moments_.size()); }
  /// What of each parameter lies in the state.
  const std::vector<ShardPiece>& pieces() const noexcept { return pieces_; }
  /// A flat tensor like the state, of all shards: [layout().total_numel()]. Collective; blocks.
  Tensor whole(const Tensor& state, comm::Communicator& shards) const;
  /// Parameter `i` of a whole flat tensor, in its shape.
  Tensor part(const Tensor& whole, int i) const;
  /// Parameter `i` of the state; it must be whole.
  Tensor master(int i) const { return part(master_, i); }
  Tensor gradient(int i) const { return part(gradient_, i); }
  Tensor moment(int k, int i) const { return part(moment(k), i); }
  /// To be called after the masters were written from outside: refreshes what is made from them.
  /// Values kept whole need a gather afterwards.
  void masters_changed();

 private:
  Tensor own_shard(const Tensor& whole) const;
  void zero_padding(const Tensor& whole);
  void zero_unwritten();
  void bind_values(const Tensor& whole);

  DeviceContext* device_;
  std::string name_;
  std::vector<autograd::Parameter*> parameters_;
  Sharding sharding_;
  ShardLayout layout_;
  std::vector<ShardPiece> pieces_;
  Tensor master_;          // f32 [state]
  Tensor shard_values_;    // compute type [shard]: what is gathered
  Tensor values_;          // compute type [total], while resident
  Tensor whole_gradient_;  // f32 [total], while open or if kept
  Tensor gradient_;        // f32 [state]: the reduced gradient
  std::vector<Tensor> moments_;
  std::vector<optim::Segment> segments_;
  bool open_ = false;
  bool reduced_ = false;  // the reduced gradient holds something of this step
};

}  // namespace engine::parallel

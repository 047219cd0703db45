#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/autograd/parameter.hpp"
#include "engine/core/device_context.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/parallel/shard_layout.hpp"

namespace engine::parallel {

/// What is gathered, reduced and stepped together: some parameters one after another in flat
/// buffers. With fp32 compute the parameters are the master weights; with bf16 they are a rounded
/// copy that every optimizer step writes anew.
class Unit {
 public:
  /// Allocates the weights and binds the parameters. `compute` is f32 or bf16. The parameters must
  /// outlive the unit.
  Unit(DeviceContext& device, std::string name, std::vector<autograd::Parameter*> parameters,
       DType compute);
  ~Unit();
  Unit(Unit&&) noexcept = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const noexcept { return name_; }
  const ShardLayout& layout() const noexcept { return layout_; }
  std::span<autograd::Parameter* const> parameters() const noexcept { return parameters_; }
  /// Number of trainable elements, padding left out.
  std::int64_t numel() const noexcept;

  /// Initial values: a function of the device's seed and each parameter's name only.
  void initialise();
  /// Allocates gradients and optimizer state, zeroed; moments are f32 or bf16.
  void prepare_training(const optim::Optimizer& optimizer, DType moments);
  bool trains() const noexcept { return static_cast<bool>(gradient_); }

  /// The next gradient written to each parameter overwrites.
  void begin_accumulation();
  /// Zeroes the gradients of parameters that nobody wrote since `begin_accumulation`.
  void finish_accumulation();
  /// Of the gradients, in double and in a fixed order.
  double gradient_sum_of_squares();
  /// One optimizer step on the whole unit.
  void step(const optim::Optimizer& optimizer, const optim::StepScalars& scalars);

  /// f32 master weights, the moments in the optimizer's order, and gradients of parameter `i`.
  Tensor master(int i) const { return part(master_, i); }
  Tensor gradient(int i) const { return part(gradient_, i); }
  Tensor moment(int k, int i) const { return part(moments_[static_cast<std::size_t>(k)], i); }
  int moments() const noexcept { return static_cast<int>(moments_.size()); }
  /// To be called after the masters were written from outside: refreshes the compute copy.
  void masters_changed();

 private:
  Tensor part(const Tensor& flat, int i) const;

  DeviceContext* device_;
  std::string name_;
  std::vector<autograd::Parameter*> parameters_;
  ShardLayout layout_;
  Tensor master_;    // f32 [total]
  Tensor compute_;   // bf16 [total], or master_
  Tensor gradient_;  // f32 [total]
  std::vector<Tensor> moments_;
  std::vector<optim::Segment> segments_;
};

}  // namespace engine::parallel

#pragma once
#include <functional>
#include <span>
#include <vector>

#include "engine/core/device_context.hpp"
#include "engine/ops/types.hpp"

namespace engine::autograd {

class Tape;

/// A tensor as seen by a recording. `id` names it on its tape; -1 means that no gradient flows.
struct Value {
  Tensor tensor;
  int id = -1;

  bool differentiable() const noexcept { return id >= 0; }
};

/// What the backward of one recorded function sees: the gradient of its output, slots for those of
/// its inputs, and a place for its weight part.
class BackwardScope {
 public:
  /// Gradient of the output.
  const Tensor& dy() const noexcept { return dy_; }
  /// Whether input `k` takes a gradient.
  bool needs(int k) const { return inputs_[static_cast<std::size_t>(k)] >= 0; }

  struct Slot {
    Tensor view;
    ops::Write write;
  };
  /// Memory for the gradient of input `k`: overwrite or add as told. It never aliases memory that
  /// somebody else still reads.
  Slot dx(int k) const;
  /// Hands over a finished gradient of input `k`; it is kept when it is the first, else added.
  void pass(int k, const Tensor& gradient) const;
  /// The weight part: runs at once, or later when the tape splits its backward.
  void weights(std::function<void()> part) const;

  DeviceContext& device() const noexcept;

 private:
  friend class Tape;
  BackwardScope(Tape& tape, std::span<const int> inputs, Tensor dy)
      : tape_(&tape), inputs_(inputs), dy_(std::move(dy)) {}

  Tape* tape_;
  std::span<const int> inputs_;
  Tensor dy_;
};

/// Records the functions of one block on one micro-batch and runs them backward once, in two parts
/// that may be scheduled apart: input gradients (with the cheap gradients of norms and biases),
/// then weight gradients of matrix products. Memory held for backward is freed node by node.
class Tape {
 public:
  enum class Mode : std::uint8_t {
    record,  ///< keep what backward needs
    replay,  ///< compute only: evaluation, generation, forward under recomputation
  };
  using Backward = std::function<void(const BackwardScope&)>;

  Tape(DeviceContext& device, Mode mode) : device_(&device), mode_(mode) {}

  DeviceContext& device() const noexcept { return *device_; }
  bool recording() const noexcept { return mode_ == Mode::record; }

  /// Enters a differentiable tensor from outside.
  Value input(const Tensor& tensor);
  /// Enters a function: returns its output as a value. `backward` may be dropped when not recording
  /// or when no input is differentiable and `has_parameters` is false.
  Value record(Tensor output, std::span<const Value> inputs, bool has_parameters,
               Backward backward);
  /// Gradient that enters at `value` when backward runs; may be called during forward (losses).
  void seed(const Value& value, const Tensor& gradient);

  /// First part. With `split`, weight parts wait for `backward_weight`.
  void backward_input(bool split = false);
  /// Second part: runs the waiting weight parts in the order of their backward.
  void backward_weight();

  /// Gradient that reached `input` (made by `input`), after `backward_input`; undefined if none.
  Tensor gradient(const Value& input) const;

 private:
  friend class BackwardScope;
  struct Node {
    std::vector<int> inputs;
    int output;
    Backward backward;
  };
  struct Slot {
    Shape shape;
    DType dtype;
    Tensor gradient;
  };
  int add_slot(const Tensor& tensor);
  Slot& slot(int id) { return slots_[static_cast<std::size_t>(id)]; }

  DeviceContext* device_;
  Mode mode_;
  bool split_ = false;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  std::vector<std::function<void()>> deferred_;
};

}  // namespace engine::autograd

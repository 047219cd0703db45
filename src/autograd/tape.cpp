#include "engine/autograd/tape.hpp"

#include <algorithm>
#include <utility>

#include "engine/ops/elementwise.hpp"

namespace engine::autograd {

DeviceContext& BackwardScope::device() const noexcept { return tape_->device(); }

BackwardScope::Slot BackwardScope::dx(int k) const {
  Tape::Slot& slot = tape_->slot(inputs_[static_cast<std::size_t>(k)]);
  if (!slot.gradient) {
    slot.gradient = device().empty(slot.shape, slot.dtype, Category::activations);
    return {slot.gradient, ops::Write::overwrite};
  }
  if (slot.gradient.use_count() > 1) {  // somebody still reads it: a residual's other branch
    const Tensor own = device().empty(slot.shape, slot.dtype, Category::activations);
    ops::copy(device(), slot.gradient, own);
    slot.gradient = own;
  }
  return {slot.gradient, ops::Write::accumulate};
}

void BackwardScope::pass(int k, const Tensor& gradient) const {
  Tape::Slot& slot = tape_->slot(inputs_[static_cast<std::size_t>(k)]);
  const Tensor shaped = gradient.shape() == slot.shape ? gradient : gradient.view(slot.shape);
  if (!slot.gradient) {
    slot.gradient = shaped;
    return;
  }
  const Slot target = dx(k);
  ops::add(device(), target.view, shaped, target.view);
}

void BackwardScope::weights(std::function<void()> part) const {
  if (tape_->split_) {
    tape_->deferred_.push_back(std::move(part));
  } else {
    part();
  }
}

int Tape::add_slot(const Tensor& tensor) {
  slots_.push_back({tensor.shape(), tensor.dtype(), {}});
  return static_cast<int>(slots_.size()) - 1;
}

Value Tape::input(const Tensor& tensor) { return {tensor, recording() ? add_slot(tensor) : -1}; }

Value Tape::record(Tensor output, std::span<const Value> inputs, bool has_parameters,
                   Backward backward) {
  const bool flows =
      has_parameters ||
      std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.differentiable(); });
  if (!recording() || !flows) return {std::move(output), -1};
  const int id = add_slot(output);
  Node node{{}, id, std::move(backward)};
  node.inputs.reserve(inputs.size());
  for (const Value& v : inputs) node.inputs.push_back(v.id);
  nodes_.push_back(std::move(node));
  return {std::move(output), id};
}

void Tape::seed(const Value& value, const Tensor& gradient) {
  if (!value.differentiable() || !gradient) return;
  ENGINE_ASSERT(gradient.numel() == slot(value.id).shape.numel(),
                "gradient of shape {} for a value of shape {}", gradient.shape().str(),
                slot(value.id).shape.str());
  const int id[] = {value.id};
  BackwardScope(*this, id, Tensor{}).pass(0, gradient);
}

void Tape::backward_input(bool split) {
  ENGINE_ASSERT(recording(), "backward of a tape that did not record");
  split_ = split;
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    Tensor dy = std::exchange(slot(node.output).gradient, Tensor{});
    if (!dy) continue;
    node.backward(BackwardScope(*this, node.inputs, std::move(dy)));
  }
}

void Tape::backward_weight() {
  for (std::function<void()>& part : deferred_) std::exchange(part, nullptr)();
  deferred_.clear();
}

Tensor Tape::gradient(const Value& input) const {
  return input.differentiable() ? slots_[static_cast<std::size_t>(input.id)].gradient : Tensor{};
}

}  // namespace engine::autograd

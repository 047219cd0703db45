#include "engine/nn/block.hpp"

#include <algorithm>

#include "engine/ops/elementwise.hpp"

namespace engine::nn {
namespace {

template <class Entries>
auto find(Entries& entries, std::string_view name) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const BlockIO::Entry& e) { return e.name == name; });
}

}  // namespace

const autograd::Value& BlockIO::get(std::string_view name) const {
  const auto it = find(entries_, name);
  ENGINE_ASSERT(it != entries_.end(), "boundary has no entry \"{}\"", name);
  return it->value;
}

void BlockIO::set(std::string_view name, autograd::Value value) {
  const auto it = find(entries_, name);
  if (it != entries_.end()) {
    it->value = std::move(value);
  } else {
    entries_.push_back({std::string(name), std::move(value)});
  }
}

void BlockIO::erase(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& e) { return e.name == name; });
}

void add_loss(autograd::Tape& tape, const BlockContext& context, const autograd::Value& value,
              double weight) {
  ENGINE_ASSERT(value.tensor.numel() == 1, "a local loss has one element, got shape {}",
                value.tensor.shape().str());
  DeviceContext& device = context.device;
  const Tensor scalar = device.empty({1}, DType::f32, Category::workspace);
  ops::copy(device, value.tensor.view({1}), scalar);
  if (context.losses != nullptr) context.losses->loss += weight * ops::sum(device, scalar);
  if (tape.recording() && value.differentiable()) {
    const Tensor seed =
        device.empty(value.tensor.shape(), value.tensor.dtype(), Category::activations);
    ops::fill(device, seed, static_cast<float>(weight * context.grad_scale));
    tape.seed(value, seed);
  }
}

}  // namespace engine::nn

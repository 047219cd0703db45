#include "block_runner.hpp"

#include <algorithm>

namespace engine::program::detail {
namespace {

using autograd::Tape;
using autograd::Value;
using nn::BlockIO;

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

Boundary take(std::map<std::pair<int, int>, Boundary>& from, const std::pair<int, int>& key) {
  const auto node = from.extract(key);
  return node.empty() ? Boundary{} : std::move(node.mapped());
}

}  // namespace

void BlockRunner::begin(std::span<const nn::MicroBatch> micros, nn::Pass pass) {
  micros_ = micros;
  pass_ = pass;
  targets_ = 0;
  losses_ = {};
  boundaries_.clear();
  gradients_.clear();
  recordings_.clear();
}

/// Runs a block on its boundary and returns the recording (empty tape when not recording).
Recording BlockRunner::run_block(const Instruction& i, const Boundary& in, Tape::Mode mode) {
  Recording r;
  r.tape = std::make_unique<Tape>(*device_, mode);
  BlockIO io;
  for (const Named& entry : in) {
    io.set(entry.name,
           is_float(entry.tensor.dtype()) ? r.tape->input(entry.tensor) : Value{entry.tensor, -1});
  }
  if (mode == Tape::Mode::record) r.inputs = io.entries();
  const nn::MicroBatch& batch = micros_[static_cast<std::size_t>(i.micro)];
  const double targets = static_cast<double>(std::max<std::int64_t>(targets_, 1));
  nn::Block& block = *(*model_)[static_cast<std::size_t>(i.block)];
  block.forward(*r.tape, io, {*device_, batch, pass_, 1 / targets, &losses_, nullptr});
  r.outputs = std::move(io.entries());
  return r;
}

void BlockRunner::forward(const Instruction& i) {
  const Key key = {i.block, i.micro};
  const bool keeps_input = pass_ == nn::Pass::train && !i.record;
  Boundary in;
  if (const auto it = boundaries_.find(key); it != boundaries_.end()) {
    in = it->second;
    if (!keeps_input) boundaries_.erase(it);
  }
  Recording r = run_block(i, in, i.record ? Tape::Mode::record : Tape::Mode::replay);
  Boundary out;
  for (const BlockIO::Entry& e : r.outputs) out.push_back({e.name, e.value.tensor});
  if (i.block + 1 < static_cast<int>(model_->size())) {
    boundaries_[{i.block + 1, i.micro}] = std::move(out);
  }
  if (i.record) keep(key, std::move(r));
}

void BlockRunner::recompute(const Instruction& i) {
  const Key key = {i.block, i.micro};
  const Boundary in = take(boundaries_, key);
  keep(key, run_block(i, in, Tape::Mode::record));
}

/// Keeps a recording without the tensors at its edges: only their ids are needed from here on.
void BlockRunner::keep(const Key& key, Recording r) {
  for (BlockIO::Entry& e : r.inputs) e.value.tensor = {};
  for (BlockIO::Entry& e : r.outputs) e.value.tensor = {};
  recordings_[key] = std::move(r);
}

void BlockRunner::backward_input(const Instruction& i, bool split) {
  const Key key = {i.block, i.micro};
  Recording& r = recordings_.at(key);
  for (Named& dy : take(gradients_, {i.block + 1, i.micro})) {
    const auto output = std::find_if(r.outputs.begin(), r.outputs.end(),
                                     [&](const BlockIO::Entry& e) { return e.name == dy.name; });
    if (output != r.outputs.end()) r.tape->seed(output->value, std::exchange(dy.tensor, {}));
  }
  r.tape->backward_input(split);
  Boundary dx;
  for (const BlockIO::Entry& e : r.inputs) {
    if (Tensor g = r.tape->gradient(e.value)) dx.push_back({e.name, std::move(g)});
  }
  if (i.block > 0) gradients_[key] = std::move(dx);
  if (!split) recordings_.erase(key);
}

void BlockRunner::backward_weight(const Instruction& i) {
  const auto node = recordings_.extract(Key{i.block, i.micro});
  node.mapped().tape->backward_weight();
}

}  // namespace engine::program::detail

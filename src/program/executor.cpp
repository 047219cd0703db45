#include "engine/program/executor.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "engine/optim/clip.hpp"

namespace engine::program {
namespace {

using autograd::Tape;
using autograd::Value;
using nn::BlockIO;

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

std::int64_t count_targets(std::span<const nn::MicroBatch> micros) {
  std::int64_t count = 0;
  for (const nn::MicroBatch& micro : micros) {
    if (micro.targets.is_meta()) {
      count += micro.targets.numel();
      continue;
    }
    const auto targets = micro.targets.span<std::int32_t>();
    count += std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
  }
  return count;
}

/// A named tensor at a boundary, outside any tape.
struct Named {
  std::string name;
  Tensor tensor;
};
using Boundary = std::vector<Named>;

/// A recorded block: its tape and what went in and came out.
struct Recording {
  std::unique_ptr<Tape> tape;
  std::vector<BlockIO::Entry> inputs;
  std::vector<BlockIO::Entry> outputs;
};

}  // namespace

struct Executor::State {
  using Key = std::pair<int, int>;  // block, micro

  DeviceContext& device;
  nn::Model& model;
  std::span<parallel::Unit> units;
  const optim::Optimizer* optimizer;

  // The run in progress.
  StepInputs inputs;
  nn::Pass pass = nn::Pass::train;
  StepResult result;
  nn::LossSums losses;
  std::map<Key, Boundary> boundaries;  // input of block, micro
  std::map<Key, Boundary> gradients;   // gradient of that input
  std::map<Key, Recording> recordings;

  void reset() {
    result = {};
    losses = {};
    boundaries.clear();
    gradients.clear();
    recordings.clear();
  }

  nn::Block& block(const Instruction& i) const { return *model[static_cast<std::size_t>(i.block)]; }

  /// Runs a block on its boundary and returns the recording (empty tape when not recording).
  Recording run_block(const Instruction& i, const Boundary& in, Tape::Mode mode) {
    Recording r;
    r.tape = std::make_unique<Tape>(device, mode);
    BlockIO io;
    for (const Named& entry : in) {
      io.set(entry.name, is_float(entry.tensor.dtype()) ? r.tape->input(entry.tensor)
                                                        : Value{entry.tensor, -1});
    }
    if (mode == Tape::Mode::record) r.inputs = io.entries();
    const nn::MicroBatch& batch = inputs.micros[static_cast<std::size_t>(i.micro)];
    const double targets = static_cast<double>(std::max<std::int64_t>(result.targets, 1));
    block(i).forward(*r.tape, io, {device, batch, pass, 1 / targets, &losses, nullptr});
    r.outputs = std::move(io.entries());
    return r;
  }

  void forward(const Instruction& i) {
    const Key key = {i.block, i.micro};
    const bool keeps_input = pass == nn::Pass::train && !i.record;
    Boundary in;
    if (const auto it = boundaries.find(key); it != boundaries.end()) {
      in = it->second;
      if (!keeps_input) boundaries.erase(it);
    }
    Recording r = run_block(i, in, i.record ? Tape::Mode::record : Tape::Mode::replay);
    Boundary out;
    for (const BlockIO::Entry& e : r.outputs) out.push_back({e.name, e.value.tensor});
    if (i.block + 1 < static_cast<int>(model.size())) {
      boundaries[{i.block + 1, i.micro}] = std::move(out);
    }
    if (i.record) keep(key, std::move(r));
  }

  void recompute(const Instruction& i) {
    const Key key = {i.block, i.micro};
    const Boundary in = take(boundaries, key);
    keep(key, run_block(i, in, Tape::Mode::record));
  }

  /// Keeps a recording without the tensors at its edges: only their ids are needed from here on.
  void keep(const Key& key, Recording r) {
    for (BlockIO::Entry& e : r.inputs) e.value.tensor = {};
    for (BlockIO::Entry& e : r.outputs) e.value.tensor = {};
    recordings[key] = std::move(r);
  }

  static Boundary take(std::map<Key, Boundary>& from, const Key& key) {
    const auto node = from.extract(key);
    return node.empty() ? Boundary{} : std::move(node.mapped());
  }

  void backward_input(const Instruction& i, bool split) {
    const Key key = {i.block, i.micro};
    Recording& r = recordings.at(key);
    for (Named& dy : take(gradients, {i.block + 1, i.micro})) {
      const auto output = std::find_if(r.outputs.begin(), r.outputs.end(),
                                       [&](const BlockIO::Entry& e) { return e.name == dy.name; });
      if (output != r.outputs.end()) r.tape->seed(output->value, std::exchange(dy.tensor, {}));
    }
    r.tape->backward_input(split);
    Boundary dx;
    for (const BlockIO::Entry& e : r.inputs) {
      if (Tensor g = r.tape->gradient(e.value)) dx.push_back({e.name, std::move(g)});
    }
    if (i.block > 0) gradients[key] = std::move(dx);
    if (!split) recordings.erase(key);
  }

  void backward_weight(const Instruction& i) {
    const auto node = recordings.extract(Key{i.block, i.micro});
    node.mapped().tape->backward_weight();
  }

  void gradient_norm() {
    double sum = 0;
    for (parallel::Unit& unit : units) {
      unit.finish_accumulation();
      sum += unit.gradient_sum_of_squares();
    }
    result.grad_norm = std::sqrt(sum);
    result.skipped =
        result.targets == 0 || !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  }

  void optimizer_step(const Instruction& i) {
    if (result.skipped) return;
    const double factor = optim::clip_factor(result.grad_norm, inputs.clip_grad_norm);
    units[static_cast<std::size_t>(i.unit)].step(*optimizer,
                                                 {inputs.lr, factor, inputs.optimizer_step});
  }

  void execute(const Instruction& i) {
    switch (i.op) {
      case Op::count_targets:
        result.targets = count_targets(inputs.micros);
        return;
      case Op::forward:
        return forward(i);
      case Op::recompute:
        return recompute(i);
      case Op::backward:
        return backward_input(i, false);
      case Op::backward_input:
        return backward_input(i, true);
      case Op::backward_weight:
        return backward_weight(i);
      case Op::reduce_metrics:
        if (result.targets > 0) result.loss = losses.loss / static_cast<double>(result.targets);
        return;
      case Op::gradient_norm:
        return gradient_norm();
      case Op::optimizer_step:
        return optimizer_step(i);
    }
  }
};

Executor::Executor(DeviceContext& device, nn::Model& model, std::span<parallel::Unit> units,
                   const optim::Optimizer* optimizer)
    : state_(new State{device, model, units, optimizer, {}, {}, {}, {}, {}, {}, {}}) {}

Executor::~Executor() = default;

StepResult Executor::run(const Program& program, const StepInputs& inputs, Trace* trace) {
  State& s = *state_;
  ENGINE_CHECK(static_cast<int>(inputs.micros.size()) == program.micros, Errc::invalid_argument,
               "program for {} micro-batches given {}", program.micros, inputs.micros.size());
  s.reset();
  s.inputs = inputs;
  s.pass = program.training ? nn::Pass::train : nn::Pass::evaluate;
  if (program.training) {
    for (parallel::Unit& unit : s.units) unit.begin_accumulation();
  }
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(t.time_since_epoch()).count();
  };
  for (const Instruction& i : program.code) {
    const auto begin = trace != nullptr ? Clock::now() : Clock::time_point{};
    s.execute(i);
    if (trace != nullptr) trace->events.push_back({i, ms(begin), ms(Clock::now())});
  }
  const StepResult result = s.result;
  s.reset();
  return result;
}

}  // namespace engine::program

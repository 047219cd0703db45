#include "engine/program/executor.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/comm/exchange.hpp"
#include "engine/optim/clip.hpp"
#include "engine/program/access.hpp"

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

/// Instructions of the data lane, logged by its thread.
class LaneLog {
 public:
  void add(const TraceEvent& event) {
    const std::scoped_lock lock(mutex_);
    events_.push_back(event);
  }
  /// Moves what was logged so far to `to`, or drops it.
  void take(std::vector<TraceEvent>* to) {
    const std::scoped_lock lock(mutex_);
    if (to != nullptr) to->insert(to->end(), events_.begin(), events_.end());
    events_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

double now_ms() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

void sleep_until_ms(double when) {
  const std::chrono::duration<double, std::milli> left(when - now_ms());
  if (left.count() > 0) std::this_thread::sleep_for(left);
}

}  // namespace

struct Executor::State {
  using Key = std::pair<int, int>;  // block, micro

  parallel::RankContext& rank;
  DeviceContext& device;
  nn::Model& model;
  const ModelInfo& info;
  std::span<parallel::Unit> units;
  const optim::Optimizer* optimizer;
  ExecutorOptions options;

  // The run in progress.
  const Program* program = nullptr;
  StepInputs inputs;
  nn::Pass pass = nn::Pass::train;
  StepResult result;
  nn::LossSums losses;
  std::map<Key, Boundary> boundaries;  // input of block, micro
  std::map<Key, Boundary> gradients;   // gradient of that input
  std::map<Key, Recording> recordings;
  Trace* trace = nullptr;

  // Transfers. Values and the lane's log outlive a run.
  struct Transfer {
    Event event;
    Instruction instruction;
    parallel::Unit::Transfer call;  // keeps its buffers until this thread lets them go
  };
  std::vector<Transfer> values;     // by unit: the latest gather
  std::vector<bool> stale;          // by unit: whole values are not those of the masters
  std::deque<Transfer> reductions;  // not yet waited for
  LaneLog log;
  int exceptions = std::uncaught_exceptions();  // passing through when it was made

  State(parallel::RankContext& the_rank, nn::Model& the_model, const ModelInfo& the_info,
        std::span<parallel::Unit> the_units, const optim::Optimizer* the_optimizer,
        const ExecutorOptions& the_options)
      : rank(the_rank),
        device(the_rank.device()),
        model(the_model),
        info(the_info),
        units(the_units),
        optimizer(the_optimizer),
        options(the_options),
        values(the_units.size()),
        stale(the_units.size(), true) {}

  parallel::Unit& unit(int u) const { return units[static_cast<std::size_t>(u)]; }
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void reset() {
    result = {};
    losses = {};
    boundaries.clear();
    gradients.clear();
    recordings.clear();
    reductions.clear();
    trace = nullptr;
  }

  // ---- transfers

  /// Hands a transfer to the data lane.
  Transfer issue(const Instruction& i, parallel::Unit::Transfer call) {
    Transfer transfer = {{}, i, call};
    transfer.event = rank.data_lane().submit([this, i, call = std::move(call)] {
      const double begin = now_ms();
      call();
      log.add({i, begin, now_ms(), Lane::data, false});
    });
    if (options.wait_at_issue) wait(transfer);
    return transfer;
  }

  void wait(const Transfer& transfer) {
    if (transfer.event.done()) return transfer.event.wait();  // throws what it threw
    const double begin = now_ms();
    transfer.event.wait();
    const double end = now_ms();
    result.exposed_ms += end - begin;
    if (trace != nullptr) {
      trace->events.push_back({transfer.instruction, begin, end, Lane::compute, true});
    }
  }

  void wait_for_values(int u) {
    wait(values[at(u)]);
    values[at(u)] = {};
  }

  void gather(const Instruction& i) {
    values[at(i.unit)] = issue(i, unit(i.unit).gather(rank.shard_group()));
    stale[at(i.unit)] = false;
  }

  void release(int u) {
    wait_for_values(u);
    unit(u).release();
  }

  void reduce_gradient(const Instruction& i) {
    reductions.push_back(
        issue(i, unit(i.unit).reduce(rank.shard_group(), rank.replica_group(), i.last)));
  }

  /// Waits until at most `most` reductions are under way; their buffers are free then.
  void retire_reductions(std::size_t most) {
    while (reductions.size() > most) {
      wait(reductions.front());
      reductions.pop_front();
    }
  }

  /// Makes units whole that the program expects whole, and no others.
  void enter(const Buffers& buffers, const std::vector<int>& resident) {
    if (!buffers.sharded_state) return;
    for (int u = 0; u < static_cast<int>(units.size()); ++u) {
      const bool wanted = !buffers.pooled_values ||
                          std::find(resident.begin(), resident.end(), u) != resident.end();
      if (wanted && (stale[at(u)] || !unit(u).resident())) {
        Instruction i;
        i.op = Op::gather;
        i.unit = u;
        gather(i);
      } else if (!wanted && unit(u).resident()) {
        release(u);
      }
    }
  }

  /// What an instruction of the compute lane needs from transfers.
  void prepare(const Instruction& i) {
    const Access a = access(i, info, *program);
    for (const std::vector<Resource>* list : {&a.reads, &a.updates, &a.drops}) {
      for (const Resource& r : *list) {
        if (r.kind == Resource::Kind::values) wait_for_values(r.index);
      }
    }
    for (const Resource& r : a.updates) {
      if (r.kind == Resource::Kind::gradients && !unit(r.index).gradients_open()) {
        if (program->buffers.pooled_gradients) {
          retire_reductions(at(options.reductions_in_flight));
        }
        unit(r.index).open_gradients();
      }
    }
  }

  // ---- compute

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

  void count() {
    result.targets = comm::exchange_sum(rank.control(), count_targets(inputs.micros));
  }

  void reduce_metrics() {
    const double loss = comm::exchange_sum(rank.control(), losses.loss);
    if (result.targets > 0) result.loss = loss / static_cast<double>(result.targets);
  }

  void gradient_norm() {
    retire_reductions(0);
    // Each shard counts once: at the first replica.
    double sum = 0;
    for (parallel::Unit& unit : units) {
      if (!program->buffers.sharded) unit.close_gradients();
      if (rank.mesh().replica() == 0) sum += unit.gradient_sum_of_squares();
    }
    result.grad_norm = std::sqrt(comm::exchange_sum(rank.control(), sum));
    result.skipped =
        result.targets == 0 || !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  }

  void optimizer_step(const Instruction& i) {
    stale[at(i.unit)] = program->buffers.sharded_state;
    if (result.skipped) return;
    const double factor = optim::clip_factor(result.grad_norm, inputs.clip_grad_norm);
    units[static_cast<std::size_t>(i.unit)].step(*optimizer,
                                                 {inputs.lr, factor, inputs.optimizer_step});
  }

  void execute(const Instruction& i) {
    switch (i.op) {
      case Op::gather:
        return gather(i);
      case Op::release:
        return release(i.unit);
      case Op::reduce_gradient:
        return reduce_gradient(i);
      case Op::count_targets:
        return count();
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
        return reduce_metrics();
      case Op::gradient_norm:
        return gradient_norm();
      case Op::optimizer_step:
        return optimizer_step(i);
    }
  }
};

Executor::Executor(parallel::RankContext& rank, nn::Model& model, const ModelInfo& info,
                   std::span<parallel::Unit> units, const optim::Optimizer* optimizer,
                   const ExecutorOptions& options)
    : state_(std::make_unique<State>(rank, model, info, units, optimizer, options)) {}

Executor::~Executor() {
  try {
    // Peers that are never told would never come to what is under way.
    if (std::uncaught_exceptions() > state_->exceptions) {
      state_->rank.world().abort("it threw an exception while collectives were under way");
    }
    state_->rank.data_lane().drain();  // it refers to this object
  } catch (...) {                      // told to whoever waited
  }
}

StepResult Executor::run(const Program& program, const StepInputs& inputs, Trace* trace) {
  State& s = *state_;
  ENGINE_CHECK(static_cast<int>(inputs.micros.size()) == program.micros, Errc::invalid_argument,
               "program for {} micro-batches given {}", program.micros, inputs.micros.size());
  s.reset();
  s.program = &program;
  s.inputs = inputs;
  s.pass = program.training ? nn::Pass::train : nn::Pass::evaluate;
  s.trace = trace;
  if (program.training) {
    for (parallel::Unit& unit : s.units) unit.begin_step();
  }
  s.enter(program.buffers, program.resident);
  for (const Instruction& i : program.code) {
    if (lane_of(i.op) != Lane::compute) {
      s.execute(i);
      continue;
    }
    s.prepare(i);
    const bool timed = trace != nullptr || s.options.sleep != nullptr;
    const double begin = timed ? now_ms() : 0;
    const double flops = s.device.counters().matmul_flops;
    s.execute(i);
    if (s.options.sleep != nullptr) sleep_until_ms(begin + s.options.sleep->of(i));
    if (trace != nullptr) {
      trace->events.push_back(
          {i, begin, now_ms(), Lane::compute, false, s.device.counters().matmul_flops - flops});
    }
  }
  s.log.take(trace != nullptr ? &trace->events : nullptr);
  const StepResult result = s.result;
  s.reset();
  return result;
}

void Executor::with_values(int block, FunctionRef<void()> body) {
  State& s = *state_;
  const std::vector<int>& used = s.info.blocks[State::at(block)].units;
  for (const int u : used) {
    if (!s.stale[State::at(u)] && s.unit(u).resident()) continue;
    Instruction i;
    i.op = Op::gather;
    i.unit = u;
    s.gather(i);
  }
  for (const int u : used) s.wait_for_values(u);
  body();
  for (const int u : used) s.release(u);
}

void Executor::values_changed() {
  State& s = *state_;
  for (std::size_t u = 0; u < s.units.size(); ++u) {
    s.release(static_cast<int>(u));
  }
  s.stale.assign(s.units.size(), true);
}

}  // namespace engine::program

#include "engine/program/executor.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "block_runner.hpp"
#include "engine/comm/exchange.hpp"
#include "engine/optim/clip.hpp"
#include "engine/program/access.hpp"
#include "transfers.hpp"

namespace engine::program {
namespace {

using detail::now_ms;

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

void sleep_until_ms(double when) {
  const std::chrono::duration<double, std::milli> left(when - now_ms());
  if (left.count() > 0) std::this_thread::sleep_for(left);
}

}  // namespace

struct Executor::State {
  State(parallel::RankContext& the_rank, nn::Model& model, const ModelInfo& the_info,
        std::span<parallel::Unit> the_units, const optim::Optimizer* the_optimizer,
        const ExecutorOptions& the_options)
      : rank(the_rank),
        info(the_info),
        units(the_units),
        optimizer(the_optimizer),
        options(the_options),
        blocks(the_rank.device(), model),
        transfers(the_rank, the_units, the_options) {}

  parallel::RankContext& rank;
  const ModelInfo& info;
  std::span<parallel::Unit> units;
  const optim::Optimizer* optimizer;
  ExecutorOptions options;
  detail::BlockRunner blocks;
  detail::Transfers transfers;

  // The run in progress.
  const Program* program = nullptr;
  StepInputs inputs;
  StepResult result;

  parallel::Unit& unit(int u) const { return units[static_cast<std::size_t>(u)]; }

  /// Waits for what an instruction of the compute lane needs from transfers.
  void prepare(const Instruction& i) {
    const Access a = access(i, info, *program);
    for (const std::vector<Resource>* list : {&a.reads, &a.updates, &a.drops}) {
      for (const Resource& r : *list) {
        if (r.kind == Resource::Kind::values) transfers.wait_for_values(r.index);
      }
    }
    for (const Resource& r : a.updates) {
      if (r.kind == Resource::Kind::gradients) transfers.open_gradients(r.index);
    }
  }

  /// Sum over all ranks; waiting for them counts as exposed communication.
  template <class T>
  T sum_over_ranks(const T& value) {
    const double begin = now_ms();
    const T sum = comm::exchange_sum(rank.control(), value);
    result.exposed_ms += now_ms() - begin;
    return sum;
  }

  void count() {
    result.targets = sum_over_ranks(count_targets(inputs.micros));
    blocks.set_targets(result.targets);
  }

  void reduce_metrics() {
    const double loss = sum_over_ranks(blocks.losses().loss);
    if (result.targets > 0) result.loss = loss / static_cast<double>(result.targets);
  }

  void gradient_norm() {
    transfers.wait_for_reductions();
    // Each shard counts once: at the first replica.
    double sum = 0;
    for (parallel::Unit& unit : units) {
      if (!program->buffers.sharded) unit.close_gradients();
      if (rank.mesh().replica() == 0) sum += unit.gradient_sum_of_squares();
    }
    result.grad_norm = std::sqrt(sum_over_ranks(sum));
    result.skipped =
        result.targets == 0 || !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  }

  void optimizer_step(const Instruction& i) {
    transfers.values_changed(i.unit);
    if (result.skipped) return;
    const double factor = optim::clip_factor(result.grad_norm, inputs.clip_grad_norm);
    unit(i.unit).step(*optimizer, {inputs.lr, factor, inputs.optimizer_step});
  }

  void execute(const Instruction& i) {
    switch (i.op) {
      case Op::gather:
        return transfers.gather(i);
      case Op::release:
        return transfers.release(i.unit);
      case Op::reduce_gradient:
        return transfers.reduce_gradient(i);
      case Op::count_targets:
        return count();
      case Op::forward:
        return blocks.forward(i);
      case Op::recompute:
        return blocks.recompute(i);
      case Op::backward:
        return blocks.backward_input(i, false);
      case Op::backward_input:
        return blocks.backward_input(i, true);
      case Op::backward_weight:
        return blocks.backward_weight(i);
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

Executor::~Executor() = default;

StepResult Executor::run(const Program& program, const StepInputs& inputs, Trace* trace) {
  State& s = *state_;
  ENGINE_CHECK(static_cast<int>(inputs.micros.size()) == program.micros, Errc::invalid_argument,
               "program for {} micro-batches given {}", program.micros, inputs.micros.size());
  s.program = &program;
  s.inputs = inputs;
  s.result = {};
  s.blocks.begin(inputs.micros, program.training ? nn::Pass::train : nn::Pass::evaluate);
  if (program.training) {
    for (parallel::Unit& unit : s.units) unit.begin_step();
  }
  s.transfers.begin(program, trace);
  const Counters& counters = s.rank.device().counters();
  for (const Instruction& i : program.code) {
    if (lane_of(i.op) != Lane::compute) {
      s.execute(i);
      continue;
    }
    s.prepare(i);
    const double begin = now_ms();
    const double flops = counters.matmul_flops;
    s.execute(i);
    if (s.options.sleep != nullptr) sleep_until_ms(begin + s.options.sleep->of(i));
    if (trace != nullptr) {
      trace->events.push_back(
          {i, begin, now_ms(), Lane::compute, false, counters.matmul_flops - flops});
    }
  }
  s.transfers.end();
  s.blocks.begin({}, nn::Pass::evaluate);  // lets go of what the run held
  s.result.exposed_ms += s.transfers.exposed_ms();
  return s.result;
}

void Executor::with_values(int block, FunctionRef<void()> body) {
  State& s = *state_;
  const std::vector<int>& used = s.info.blocks[static_cast<std::size_t>(block)].units;
  for (const int u : used) s.transfers.make_whole(u);
  for (const int u : used) s.transfers.wait_for_values(u);
  body();
  for (const int u : used) s.transfers.release(u);
}

void Executor::values_changed() {
  State& s = *state_;
  for (int u = 0; u < static_cast<int>(s.units.size()); ++u) {
    s.transfers.release(u);
    s.transfers.values_changed(u);
  }
}

}  // namespace engine::program

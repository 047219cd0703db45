#include "engine/program/program.hpp"
#include "engine/program/schedule.hpp"
#include "engine/program/sharding.hpp"

namespace engine::program {
namespace {

Instruction on_block(Op op, int block, int micro, bool record = false) {
  Instruction i;
  i.op = op;
  i.block = block;
  i.micro = micro;
  i.record = record;
  return i;
}

Instruction whole_step(Op op) {
  Instruction i;
  i.op = op;
  return i;
}

}  // namespace

Program plan_step(const ModelInfo& model, const StepPlan& plan) {
  Program program;
  program.micros = plan.micros;
  std::vector<Instruction>& code = program.code;
  const int blocks = static_cast<int>(model.blocks.size());
  const auto recomputed = [&](int b) {
    return plan.recompute == Recompute::full &&
           !model.blocks[static_cast<std::size_t>(b)].makes_loss;
  };

  code.push_back(whole_step(Op::count_targets));
  for (const Slot& slot : one_forward_one_backward(1, 0, plan.micros)) {
    if (slot.kind == Slot::Kind::forward) {
      for (int b = 0; b < blocks; ++b) {
        code.push_back(on_block(Op::forward, b, slot.micro, !recomputed(b)));
      }
      continue;
    }
    for (int b = blocks - 1; b >= 0; --b) {
      if (recomputed(b)) code.push_back(on_block(Op::recompute, b, slot.micro));
      if (plan.split_backward) {
        code.push_back(on_block(Op::backward_input, b, slot.micro));
        code.push_back(on_block(Op::backward_weight, b, slot.micro));
      } else {
        code.push_back(on_block(Op::backward, b, slot.micro));
      }
    }
  }
  code.push_back(whole_step(Op::reduce_metrics));
  code.push_back(whole_step(Op::gradient_norm));
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
    code.push_back(Instruction::on_unit(Op::optimizer_step, u));
  }
  insert_sharding(program, model, plan.sharding);
  prefetch_gathers(program, model, plan.sharding.prefetch_units);
  return program;
}

Program plan_evaluation(const ModelInfo& model, int micros, const ShardPlan& sharding) {
  Program program;
  program.micros = micros;
  program.training = false;
  program.code.push_back(whole_step(Op::count_targets));
  for (int m = 0; m < micros; ++m) {
    for (int b = 0; b < static_cast<int>(model.blocks.size()); ++b) {
      program.code.push_back(on_block(Op::forward, b, m));
    }
  }
  program.code.push_back(whole_step(Op::reduce_metrics));
  insert_sharding(program, model, sharding);
  prefetch_gathers(program, model, sharding.prefetch_units);
  return program;
}

}  // namespace engine::program

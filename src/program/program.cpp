#include "engine/program/program.hpp"

#include <fmt/core.h>

#include <iterator>

namespace engine::program {

std::string_view name(Op op) noexcept {
  switch (op) {
    case Op::count_targets:
      return "CountTargets";
    case Op::forward:
      return "Forward";
    case Op::recompute:
      return "Recompute";
    case Op::backward:
      return "Backward";
    case Op::backward_input:
      return "BackwardInput";
    case Op::backward_weight:
      return "BackwardWeight";
    case Op::reduce_metrics:
      return "ReduceMetrics";
    case Op::gradient_norm:
      return "GradientNorm";
    case Op::optimizer_step:
      return "OptimizerStep";
  }
  return "?";
}

std::string Instruction::str() const {
  std::string text(name(op));
  if (block >= 0) text += fmt::format(" block {}", block);
  if (unit >= 0) text += fmt::format(" unit {}", unit);
  if (micro >= 0) text += fmt::format(" micro {}", micro);
  return text;
}

std::string Program::summary(const ModelInfo& model) const {
  std::string text;
  for (std::size_t i = 0; i < code.size();) {
    const Instruction& first = code[i];
    std::size_t end = i + 1;
    while (end < code.size() && code[end].op == first.op && code[end].micro == first.micro) ++end;
    const Instruction& last = code[end - 1];
    text += fmt::format("{:<15}", name(first.op));
    if (first.micro >= 0) text += fmt::format(" micro {}", first.micro);
    const auto range = [&](int a, int b, const auto& label) {
      text +=
          a == b ? fmt::format("  {}", label(a)) : fmt::format("  {} .. {}", label(a), label(b));
    };
    if (first.block >= 0) {
      range(first.block, last.block,
            [&](int b) { return model.blocks[static_cast<std::size_t>(b)].name; });
    }
    if (first.unit >= 0) {
      range(first.unit, last.unit, [&](int u) { return model.units[static_cast<std::size_t>(u)]; });
    }
    text += '\n';
    i = end;
  }
  return text;
}

}  // namespace engine::program

#include "engine/program/program.hpp"

#include <fmt/core.h>

namespace engine::program {

std::string_view name(Op op) noexcept {
  switch (op) {
    case Op::gather:
      return "Gather";
    case Op::release:
      return "Release";
    case Op::reduce_gradient:
      return "ReduceGradient";
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

std::string_view name(Lane lane) noexcept { return lane == Lane::compute ? "compute" : "data"; }

Lane lane_of(Op op) noexcept {
  return op == Op::gather || op == Op::reduce_gradient ? Lane::data : Lane::compute;
}

std::string Instruction::str() const {
  std::string text(name(op));
  if (block >= 0) text += fmt::format(" block {}", block);
  if (unit >= 0) text += fmt::format(" unit {}", unit);
  if (micro >= 0) text += fmt::format(" micro {}", micro);
  if (last) text += " last";
  return text;
}

namespace {

/// How often the `period` instructions from `at` on repeat, each time on other blocks and units.
std::size_t repeats(const std::vector<Instruction>& code, std::size_t at, std::size_t period) {
  std::size_t count = 1;
  for (;; ++count) {
    for (std::size_t k = 0; k < period; ++k) {
      const std::size_t other = at + count * period + k;
      if (other >= code.size() || code[other].op != code[at + k].op ||
          code[other].micro != code[at + k].micro) {
        return count;
      }
    }
  }
}

}  // namespace

std::string Program::summary(const ModelInfo& model) const {
  constexpr std::size_t kLongestPeriod = 8;
  const auto label = [&](const Instruction& i) -> std::string {
    if (i.block >= 0) return model.blocks[static_cast<std::size_t>(i.block)].name;
    return i.unit >= 0 ? model.units[static_cast<std::size_t>(i.unit)] : "";
  };
  std::string text;
  for (std::size_t at = 0; at < code.size();) {
    std::size_t period = 1;
    std::size_t count = repeats(code, at, 1);
    for (std::size_t p = 2; p <= kLongestPeriod && count == 1; ++p) {
      if (repeats(code, at, p) > 1) period = p, count = repeats(code, at, p);
    }
    for (std::size_t k = 0; k < period; ++k) {
      const Instruction& first = code[at + k];
      const std::string begin = label(first);
      const std::string end = label(code[at + (count - 1) * period + k]);
      text += fmt::format("{} {:<15}",
                          period == 1      ? " "
                          : k == 0         ? "/"
                          : k + 1 < period ? "|"
                                           : "\\",
                          name(first.op));
      text += first.micro >= 0 ? fmt::format(" micro {:<3}", first.micro) : std::string(10, ' ');
      if (!begin.empty()) text += fmt::format(" {}", begin);
      if (begin != end) text += fmt::format(" .. {}", end);
      while (text.back() == ' ') text.pop_back();
      text += '\n';
    }
    at += period * count;
  }
  return text;
}

}  // namespace engine::program

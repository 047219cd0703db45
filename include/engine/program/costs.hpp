#pragma once
#include <functional>
#include <map>
#include <span>
#include <tuple>

#include "engine/program/trace.hpp"

namespace engine::program {

/// How long instructions take, in milliseconds. Micro-batches are alike.
class Costs {
 public:
  /// 0 for an instruction that was never set.
  double of(const Instruction& instruction) const;
  void set(const Instruction& instruction, double ms);
  /// Medians of executed instructions; waits are left out.
  static Costs measured(std::span<const Trace> traces);
  /// From the matrix products in a trace made on the meta device; instructions without any take
  /// what `other` says.
  static Costs modelled(const Trace& trace, double flops_per_ms,
                        const std::function<double(const Instruction&)>& other);

 private:
  using Key = std::tuple<Op, int, int>;
  static Key key(const Instruction& i) { return {i.op, i.block, i.unit}; }
  std::map<Key, double> ms_;
};

}  // namespace engine::program

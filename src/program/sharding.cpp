#include "engine/program/sharding.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "engine/program/access.hpp"

namespace engine::program {
namespace {

using Kind = Resource::Kind;

std::vector<int> units_of(const std::vector<Resource>& list, Kind kind) {
  std::vector<int> units;
  for (const Resource& r : list) {
    if (r.kind == kind) units.push_back(r.index);
  }
  return units;
}

/// Positions of the instructions that read or write something of each unit, in order.
using Uses = std::map<int, std::vector<std::size_t>>;

Uses uses(const Program& program, const ModelInfo& model, Kind kind) {
  Uses result;
  for (std::size_t at = 0; at < program.code.size(); ++at) {
    const Instruction& i = program.code[at];
    if (i.block < 0) continue;
    const Access a = access(i, model, program);
    for (const int u : units_of(kind == Kind::values ? a.reads : a.updates, kind)) {
      result[u].push_back(at);
    }
  }
  return result;
}

/// Instructions to put before and after positions of the code.
struct Insertions {
  std::map<std::size_t, std::vector<Instruction>> before;
  std::map<std::size_t, std::vector<Instruction>> after;

  void apply(std::vector<Instruction>& code) {
    std::vector<Instruction> result;
    for (std::size_t at = 0; at < code.size(); ++at) {
      for (const Instruction& i : before[at]) result.push_back(i);
      result.push_back(code[at]);
      for (const Instruction& i : after[at]) result.push_back(i);
    }
    code = std::move(result);
  }
};

/// Pooled values: whole from a gather before a run of neighbouring readers to a release after it.
void insert_gathers(Insertions& into, const Program& program, const ModelInfo& model,
                    Every gather) {
  for (const auto& [unit, readers] : uses(program, model, Kind::values)) {
    for (std::size_t k = 0; k < readers.size(); ++k) {
      const bool first = k == 0;
      const bool last = k + 1 == readers.size();
      const auto neighbours = [&](std::size_t a, std::size_t b) { return b == a + 1; };
      if (first || (gather == Every::micro && !neighbours(readers[k - 1], readers[k]))) {
        into.before[readers[k]].push_back(Instruction::on_unit(Op::gather, unit));
      }
      if (last || (gather == Every::micro && !neighbours(readers[k], readers[k + 1]))) {
        into.after[readers[k]].push_back(Instruction::on_unit(Op::release, unit));
      }
    }
  }
}

/// A reduction after the last writer of each micro-batch, or of the step. Micro-batches whose
/// writers interleave share one reduction.
void insert_reductions(Insertions& into, const Program& program, const ModelInfo& model,
                       Every reduce) {
  const Uses writers = uses(program, model, Kind::gradients);
  for (int unit = 0; unit < static_cast<int>(model.units.size()); ++unit) {
    const auto found = writers.find(unit);
    if (found == writers.end()) continue;
    std::map<int, std::size_t> end_of_micro;
    for (const std::size_t at : found->second) end_of_micro[program.code[at].micro] = at;
    std::set<int> begun;
    for (const std::size_t at : found->second) {
      const int micro = program.code[at].micro;
      begun.insert(micro);
      if (end_of_micro[micro] == at) begun.erase(micro);
      const bool last = at == found->second.back();
      if (last || (reduce == Every::micro && begun.empty())) {
        Instruction i = Instruction::on_unit(Op::reduce_gradient, unit);
        i.last = last;
        into.after[at].push_back(i);
      }
    }
  }
}

bool reads_values(const Instruction& i, const ModelInfo& model, const Program& program, int unit) {
  if (i.block < 0) return false;
  const auto units = units_of(access(i, model, program).reads, Kind::values);
  return std::find(units.begin(), units.end(), unit) != units.end();
}

/// Where values change or go: a gather may not move before it.
bool ends_values(const Instruction& i, int unit) {
  return i.unit == unit && (i.op == Op::release || i.op == Op::optimizer_step);
}

/// A unit that is gathered right after its release stays whole instead.
void keep_what_is_gathered_again(std::vector<Instruction>& code) {
  std::vector<Instruction> result;
  for (const Instruction& i : code) {
    if (i.op == Op::gather) {
      std::size_t at = result.size();
      while (at > 0 && (result[at - 1].op == Op::gather || result[at - 1].op == Op::release) &&
             result[at - 1].unit != i.unit) {
        --at;
      }
      if (at > 0 && result[at - 1].op == Op::release && result[at - 1].unit == i.unit) {
        result.erase(result.begin() + static_cast<std::ptrdiff_t>(at - 1));
        continue;
      }
    }
    result.push_back(i);
  }
  code = std::move(result);
}

}  // namespace

void insert_sharding(Program& program, const ModelInfo& model, const ShardPlan& plan) {
  program.buffers = plan.buffers();
  if (!program.buffers.sharded) return;
  Insertions into;
  if (program.training) {
    insert_reductions(into, program, model,
                      program.buffers.pooled_gradients ? plan.reduce : Every::step);
  }
  if (program.buffers.pooled_values) {
    insert_gathers(into, program, model, plan.gather);
  } else if (plan.shards > 1 && plan.zero_stage >= 1) {
    for (std::size_t at = 0; at < program.code.size(); ++at) {
      const Instruction& i = program.code[at];
      if (i.op == Op::optimizer_step)
        into.after[at].push_back(Instruction::on_unit(Op::gather, i.unit));
    }
  }
  into.apply(program.code);
}

void prefetch_gathers(Program& program, const ModelInfo& model, int units) {
  if (!program.buffers.pooled_values || units <= 0) return;
  std::vector<Instruction>& code = program.code;

  // Gathers side by side serve one reader and share a place; place n moves to place n - units.
  std::vector<std::size_t> places;
  std::vector<bool> drop(code.size(), false);
  std::map<std::size_t, std::vector<Instruction>> before;
  std::vector<int> crossing;
  for (std::size_t at = 0; at < code.size(); ++at) {
    if (code[at].op != Op::gather) continue;
    if (at == 0 || code[at - 1].op != Op::gather) places.push_back(at);
    const Instruction& gather = code[at];
    drop[at] = true;
    const std::size_t n = places.size() - 1;
    const bool across = n < static_cast<std::size_t>(units);
    const std::size_t target = across ? 0 : places[n - static_cast<std::size_t>(units)];
    std::size_t to = at;
    while (to > target && !ends_values(code[to - 1], gather.unit)) --to;
    if (across && to == target) {
      crossing.push_back(gather.unit);
    } else {
      before[to].push_back(gather);
    }
  }
  std::vector<Instruction> result;
  for (std::size_t at = 0; at < code.size(); ++at) {
    for (const Instruction& i : before[at]) result.push_back(i);
    if (!drop[at]) result.push_back(code[at]);
  }
  code = std::move(result);
  keep_what_is_gathered_again(code);

  // What crosses the boundary is gathered at the end, as soon as its values are there.
  program.resident = crossing;
  for (const int unit : crossing) {
    std::size_t after = 0;
    for (std::size_t at = 0; at < code.size(); ++at) {
      if (ends_values(code[at], unit) || reads_values(code[at], model, program, unit)) {
        after = at + 1;
      }
    }
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(after),
                Instruction::on_unit(Op::gather, unit));
  }
}

}  // namespace engine::program

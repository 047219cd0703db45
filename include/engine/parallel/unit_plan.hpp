#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/parameter.hpp"

namespace engine::parallel {

/// Which parameters form a unit, before there is memory.
struct UnitPlan {
  struct Unit {
    std::string name;
    std::vector<autograd::Parameter*> parameters;
  };
  std::vector<Unit> units;
  std::vector<std::vector<int>> units_of_block;
};

/// One block's name and parameters, for planning.
struct BlockParameters {
  std::string name;
  std::vector<autograd::Parameter*> parameters;
};

/// Parameters used by the same blocks form a unit: usually one unit a block, and one for each
/// weight that blocks share (a tied embedding), which takes the weight's name.
inline UnitPlan plan_units(std::span<const BlockParameters> blocks) {
  std::map<autograd::Parameter*, std::vector<int>> users;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    for (autograd::Parameter* p : blocks[static_cast<std::size_t>(b)].parameters) {
      std::vector<int>& list = users[p];
      if (list.empty() || list.back() != b) list.push_back(b);
    }
  }
  UnitPlan plan;
  plan.units_of_block.resize(blocks.size());
  std::map<std::vector<int>, int> unit_of;
  std::map<autograd::Parameter*, bool> placed;
  for (const BlockParameters& block : blocks) {
    for (autograd::Parameter* p : block.parameters) {
      if (std::exchange(placed[p], true)) continue;
      const std::vector<int>& key = users[p];
      const auto [it, fresh] = unit_of.try_emplace(key, static_cast<int>(plan.units.size()));
      if (fresh) {
        plan.units.push_back({key.size() == 1 ? block.name : p->name(), {}});
        for (const int b : key)
          plan.units_of_block[static_cast<std::size_t>(b)].push_back(it->second);
      }
      plan.units[static_cast<std::size_t>(it->second)].parameters.push_back(p);
    }
  }
  return plan;
}

}  // namespace engine::parallel

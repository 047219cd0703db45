#include "engine/program/costs.hpp"

#include <algorithm>
#include <vector>

namespace engine::program {

double Costs::of(const Instruction& instruction) const {
  const auto found = ms_.find(key(instruction));
  return found == ms_.end() ? 0 : found->second;
}

void Costs::set(const Instruction& instruction, double ms) { ms_[key(instruction)] = ms; }

Costs Costs::measured(std::span<const Trace> traces) {
  std::map<Key, std::vector<double>> samples;
  for (const Trace& trace : traces) {
    for (const TraceEvent& e : trace.events) {
      if (!e.wait) samples[key(e.instruction)].push_back(e.end_ms - e.begin_ms);
    }
  }
  Costs costs;
  for (auto& [key, ms] : samples) {
    const auto middle = ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2);
    std::nth_element(ms.begin(), middle, ms.end());
    costs.ms_[key] = *middle;
  }
  return costs;
}

Costs Costs::modelled(const Trace& trace, double flops_per_ms,
                      const std::function<double(const Instruction&)>& other) {
  Costs costs;
  for (const TraceEvent& e : trace.events) {
    if (e.wait) continue;
    costs.set(e.instruction, e.flops > 0 ? e.flops / flops_per_ms : other(e.instruction));
  }
  return costs;
}

}  // namespace engine::program

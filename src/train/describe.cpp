#include "engine/train/progress.hpp"
#include "engine/train/trainer.hpp"
#include "prediction.hpp"

namespace engine::train {
namespace {

std::string bytes(std::int64_t n) { return format_bytes(static_cast<double>(n)); }

std::string memory_table(const MemoryStats& memory) {
  std::string text = "memory       predicted peak of a rank\n";
  for (int i = 0; i < kCategories; ++i) {
    text += fmt::format("{:<13}{:>10}\n", name(static_cast<Category>(i)),
                        bytes(memory.categories[static_cast<std::size_t>(i)].peak_bytes));
  }
  return text + fmt::format("{:<13}{:>10}\n", "together", bytes(memory.total.peak_bytes));
}

/// What the choices of parallel.gather and parallel.reduce come to.
std::string choices_table(const RunPlan& plan, const detail::Machine& machine) {
  std::string text = "choices      gather  reduce  memory of a rank  sent by a rank  step\n";
  const bool gathers = plan.session.zero_stage >= 3;
  for (const auto gather : {program::Every::micro, program::Every::step}) {
    if (!gathers && gather == program::Every::step) continue;
    for (const auto reduce : {program::Every::micro, program::Every::step}) {
      RunPlan other = plan;
      other.session.gather = gather;
      other.session.reduce = reduce;
      const detail::Prediction p = detail::predict(other, &machine);
      const auto word = [](program::Every e) {
        return e == program::Every::micro ? "micro" : "step";
      };
      const bool chosen = gather == plan.session.gather && reduce == plan.session.reduce;
      text += fmt::format("{:<13}{:<8}{:<8}{:>16}{:>16}{:>8.0f} ms\n", chosen ? "  chosen" : "",
                          gathers ? word(gather) : "-", word(reduce),
                          bytes(p.memory.total.peak_bytes), bytes(p.sent_bytes), p.step_ms);
    }
  }
  return text;
}

}  // namespace

std::string describe(const RunPlan& plan) {
  const Config& c = plan.config;
  const detail::Machine machine = detail::measure_machine(plan);
  const detail::Prediction p = detail::predict(plan, &machine);
  std::string text = fmt::format(
      "model        {}: {} layers, hidden {}, {} heads ({} KV) of {}, vocabulary {}\n"
      "parameters   {}\n"
      "layout       {} rank{}: data {} ({} shards x {} replicas), ZeRO stage {}\n"
      "batch        {} sequences of {} tokens a step: on each rank {} micro-batches of {}\n"
      "work         {:.1f} GFLOP of matrix products and {} sent, by a rank in a step\n"
      "step         {:.0f} ms predicted, {:.0f} ms of it waiting for communication (matrix "
      "products "
      "at the {:.0f} GFLOP/s measured here, copies at {:.1f} GB/s)\n\nstep program of a rank\n",
      c.model.family, c.model.layers, c.model.hidden_size, c.model.heads, c.model.kv_heads,
      c.model.head_dim, c.model.vocab_size, p.parameters, plan.mesh.size(),
      plan.mesh.size() == 1 ? "" : "s", plan.mesh.data, plan.mesh.shards(), plan.mesh.replicate,
      c.parallel.zero_stage, c.batch.global, c.batch.sequence_length, plan.micros, c.batch.micro,
      p.flops / 1e9, bytes(p.sent_bytes), p.step_ms, p.exposed_ms, machine.flops_per_ms / 1e6,
      machine.copy_bytes_per_ms / 1e6);
  text += p.program + "\n" + memory_table(p.memory);
  if (plan.mesh.shards() > 1 && c.parallel.zero_stage >= 2 && plan.micros > 1) {
    text += "\n" + choices_table(plan, machine);
  }
  return text;
}

}  // namespace engine::train

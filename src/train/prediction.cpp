#include "prediction.hpp"

#include <algorithm>
#include <fstream>

#include "engine/nn/models.hpp"
#include "engine/train/progress.hpp"
#include "engine/train/trainer.hpp"
#include "ranks.hpp"

namespace engine::train {
namespace detail {

parallel::RankContext::Options rank_options(const RunPlan& plan, int rank, bool quiet) {
  const std::int64_t wanted = plan.config.train.threads;
  const auto threads = wanted > 0 ? static_cast<int>(wanted) : available_cpus();
  parallel::RankContext::Options options;
  options.device.threads = std::max(1, threads / local_ranks(plan));
  options.device.seed = static_cast<std::uint64_t>(plan.config.train.seed);
  // Rank 0 speaks for all; others say what is wrong, and who they are.
  options.device.logger = Logger({.level = quiet || rank != 0 ? LogLevel::warning : LogLevel::info,
                                  .rank = rank,
                                  .world_size = rank == 0 ? 1 : plan.mesh.size(),
                                  .sink = {}});
  options.mesh = plan.mesh;
  return options;
}

Prediction predict(const RunPlan& plan) {
  parallel::RankContext::Options options = rank_options(plan, 0, true);
  options.device.device.type = DeviceType::meta;
  const auto world = comm::make_meta_world(0, plan.mesh.size());
  parallel::RankContext rank(options, *world);
  Session session(rank, nn::make_model(plan.model), plan.session);
  std::vector<nn::MicroBatch> micros;
  for (int m = 0; m < plan.micros; ++m) {
    micros.push_back(
        session.make_batch(plan.config.batch.micro, plan.config.batch.sequence_length));
  }
  session.step(micros, plan.schedule.at(0));
  return {rank.device().memory().stats(), rank.device().counters().matmul_flops,
          session.parameter_count(),
          session.step_program(plan.micros).summary(session.model_info())};
}

std::int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  }
  return 0;
}

}  // namespace detail

std::string describe(const RunPlan& plan) {
  const Config& c = plan.config;
  const detail::Prediction prediction = detail::predict(plan);
  const MemoryStats& memory = prediction.memory;
  std::string text = fmt::format(
      "model        {}: {} layers, hidden {}, {} heads ({} KV) of {}, vocabulary {}\n"
      "parameters   {}\n"
      "batch        {} sequences of {} tokens a step: {} micro-batches of {}\n"
      "work         {:.1f} GFLOP a step in matrix products\n\nstep program\n",
      c.model.family, c.model.layers, c.model.hidden_size, c.model.heads, c.model.kv_heads,
      c.model.head_dim, c.model.vocab_size, prediction.parameters, c.batch.global,
      c.batch.sequence_length, plan.micros, c.batch.micro, prediction.flops / 1e9);
  text += prediction.program;
  text += "\nmemory       predicted peak\n";
  for (int i = 0; i < kCategories; ++i) {
    const auto& usage = memory.categories[static_cast<std::size_t>(i)];
    text += fmt::format("{:<13}{:>10}\n", name(static_cast<Category>(i)),
                        format_bytes(static_cast<double>(usage.peak_bytes)));
  }
  text += fmt::format("{:<13}{:>10}\n", "together",
                      format_bytes(static_cast<double>(memory.total.peak_bytes)));
  return text;
}

}  // namespace engine::train

// Measures what a rank holds between steps at each ZeRO stage and prints it beside the formula, as
// the Markdown table of docs/layouts.md.
//
//   memory_table [RANKS [LAYERS [HIDDEN [VOCABULARY]]]]      default: 4 ranks, GPT-2 124M
#include <fmt/core.h>

#include <cstdlib>
#include <vector>

#include "engine/nn/models.hpp"
#include "engine/train/session.hpp"

namespace {

using namespace engine;  // short names for a short program

struct Row {
  double parameters = 0, gradients = 0, optimizer = 0, formula[3] = {}, padding = 0;
};

Row measure(int ranks, const nn::ModelConfig& model, int stage, DType compute) {
  Row row;
  comm::spawn_ranks(ranks, {600, 120}, [&](comm::World& world) {
    parallel::RankContext::Options options;
    options.device.threads = 1;
    options.device.logger = Logger({.level = LogLevel::off, .sink = {}});
    options.mesh.data = ranks;
    parallel::RankContext rank(options, world);
    train::SessionOptions session_options;
    session_options.compute = compute;
    session_options.zero_stage = stage;
    session_options.prefetch_units = 0;
    train::Session session(rank, nn::make_model(model), session_options);
    const nn::MicroBatch batch = session.make_batch(1, 16);
    for (auto* ids : {&batch.tokens, &batch.targets}) {
      for (std::int32_t& id : ids->span<std::int32_t>()) id = 7;
    }
    session.step({&batch, 1}, 1e-4);
    if (rank.rank() != 0) return;
    const MemoryStats stats = rank.device().memory().stats();
    const auto held = [&](Category c) {
      return static_cast<double>(stats.categories[static_cast<std::size_t>(c)].now_bytes);
    };
    double whole = 0;
    for (const parallel::Unit& unit : session.units()) {
      row.padding += static_cast<double>(unit.layout().total_numel() - unit.numel());
      whole += static_cast<double>(unit.numel());
    }
    row.padding /= whole;
    const auto from = [&](int sharded_from) {
      return stage >= sharded_from ? whole / ranks : whole;
    };
    row.parameters = held(Category::parameters);
    row.gradients = held(Category::gradients);
    row.optimizer = held(Category::optimizer);
    row.formula[0] = compute == DType::bf16 ? 2 * from(3) + 4 * from(1) : 4 * from(3);
    row.formula[1] = 4 * from(2);
    row.formula[2] = 8 * from(1);
  });
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise;
  };
  const int ranks = static_cast<int>(argument(1, 4));
  nn::ModelConfig model;
  model.layers = argument(2, 12);
  model.hidden_size = argument(3, 768);
  model.vocab_size = argument(4, 50257);
  model.head_dim = 64;
  model.heads = model.kv_heads = model.hidden_size / 64;
  model.ffn_size = 4 * model.hidden_size;
  fmt::print(
      "| compute | stage | parameters | gradients | optimizer | together | over the formula |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const Row r = measure(ranks, model, stage, compute);
      const double together = r.parameters + r.gradients + r.optimizer;
      const double formula = r.formula[0] + r.formula[1] + r.formula[2];
      fmt::print(
          "| {} | {} | {:.1f} ({:.1f}) | {:.1f} ({:.1f}) | {:.1f} ({:.1f}) | {:.1f} ({:.1f}) | "
          "{:.3f}% |\n",
          compute == DType::f32 ? "fp32" : "bf16", stage, r.parameters / 1e6, r.formula[0] / 1e6,
          r.gradients / 1e6, r.formula[1] / 1e6, r.optimizer / 1e6, r.formula[2] / 1e6,
          together / 1e6, formula / 1e6, 100 * (together / formula - 1));
      std::fflush(stdout);
    }
  }
  return 0;
}

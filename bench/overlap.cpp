// How much of ZeRO-3's communication hides behind real compute, and how well the simulator knows:
// two rank threads of one compute thread each, a GPT-2 of twelve blocks, an emulated network whose
// speed is set so that communication takes as long as compute. Prints one JSON object.
//
//   overlap [HIDDEN [SEQUENCE [STEPS [PREFETCH]]]]      default: 512, 256, 7, 2
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "engine/nn/models.hpp"
#include "engine/program/simulator.hpp"
#include "engine/train/session.hpp"

namespace {

using namespace engine;  // short names for a short program
using program::Lane;

struct Setting {
  nn::ModelConfig model;
  std::int64_t length = 256;
  int steps = 7;
  int prefetch_units = 2;
};

struct Measured {
  double step_ms = 0, compute_ms = 0, data_ms = 0, exposed_ms = 0, simulated_ms = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Measured measure(const Setting& setting, bool wait_at_issue, double gigabits_per_s) {
  Measured measured;
  comm::ThreadWorlds worlds(2, {600, 120});
  const auto join = [&](int rank) {
    return comm::emulate_links(worlds.join(rank), {0, gigabits_per_s});
  };
  comm::spawn_ranks(2, join, [&](comm::World& world) {
    parallel::RankContext::Options options;
    options.device.threads = 1;
    options.device.logger = Logger({.level = LogLevel::off, .sink = {}});
    options.mesh.data = 2;
    parallel::RankContext rank(options, world);
    train::SessionOptions session_options;
    session_options.zero_stage = 3;
    session_options.prefetch_units = setting.prefetch_units;
    session_options.executor.wait_at_issue = wait_at_issue;
    train::Session session(rank, nn::make_model(setting.model), session_options);
    const nn::MicroBatch batch = session.make_batch(1, setting.length);
    std::int32_t next = 1;
    for (auto* ids : {&batch.tokens, &batch.targets}) {
      for (std::int32_t& id : ids->span<std::int32_t>()) {
        id = next = static_cast<std::int32_t>((next * 31 + 7) % setting.model.vocab_size);
      }
    }
    for (int i = 0; i < 2; ++i) session.step({&batch, 1}, 1e-4);
    std::vector<program::Trace> traces;
    std::vector<double> step, compute, data, exposed;
    for (int i = 0; i < setting.steps; ++i) {
      traces.emplace_back();
      const auto begin = std::chrono::steady_clock::now();
      const auto result = session.step({&batch, 1}, 1e-4, &traces.back());
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
      step.push_back(ms.count());
      compute.push_back(traces.back().busy_ms(Lane::compute));
      data.push_back(traces.back().busy_ms(Lane::data));
      exposed.push_back(result.exposed_ms);
    }
    if (rank.rank() != 0) return;
    const auto simulation =
        program::simulate(session.step_program(1), session.model_info(),
                          program::Costs::measured(traces), session_options.executor);
    measured = {median(step), median(compute), median(data), median(exposed), simulation.step_ms};
  });
  return measured;
}

void print(const char* name, const Measured& m, const char* end) {
  fmt::print(
      "  \"{}\": {{\"step_ms\": {:.1f}, \"compute_ms\": {:.1f}, \"data_ms\": {:.1f}, "
      "\"exposed_ms\": {:.1f}, \"simulated_ms\": {:.1f}, \"simulated_over_measured\": {:.3f}}}{}\n",
      name, m.step_ms, m.compute_ms, m.data_ms, m.exposed_ms, m.simulated_ms,
      m.simulated_ms / m.step_ms, end);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise;
  };
  Setting setting;
  nn::ModelConfig& model = setting.model;
  model.hidden_size = argument(1, 512);
  setting.length = argument(2, 256);
  setting.steps = static_cast<int>(argument(3, 7));
  setting.prefetch_units = static_cast<int>(argument(4, 2));
  model.vocab_size = 512;
  model.context_length = setting.length;
  model.head_dim = 64;
  model.heads = model.kv_heads = model.hidden_size / 64;
  model.ffn_size = 4 * model.hidden_size;

  // A network of the speed at which the data lane is as busy as the compute lane. Bytes sent in a
  // step: half of the weights twice (forward and backward) and half of the gradients.
  const Measured fast = measure(setting, false, 1e6);
  const double weights = 12.0 * 12 * static_cast<double>(model.hidden_size * model.hidden_size);
  const double gigabits_per_s = weights * 4 * 1.5 * 8 / (fast.compute_ms * 1e6);
  const Measured serial = measure(setting, true, gigabits_per_s);
  const Measured overlapped = measure(setting, false, gigabits_per_s);
  fmt::print(
      "{{\n  \"hidden\": {}, \"sequence\": {}, \"prefetch_units\": {}, \"gigabits_per_s\": "
      "{:.2f},\n",
      model.hidden_size, setting.length, setting.prefetch_units, gigabits_per_s);
  print("fast_network", fast, ",");
  print("wait_at_issue", serial, ",");
  print("overlapped", overlapped, ",");
  fmt::print("  \"overlapped_over_bound\": {:.3f}, \"overlapped_over_serial\": {:.3f}\n}}\n",
             overlapped.step_ms / std::max(overlapped.compute_ms, overlapped.data_ms),
             overlapped.step_ms / serial.step_ms);
  return 0;
}

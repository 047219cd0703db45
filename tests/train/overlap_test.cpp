// How much of the communication hides behind compute, in wall time, with emulated links and compute
// that sleeps: what is tested is the executor's waiting, not this machine.
#include <gtest/gtest.h>

#include "engine/program/simulator.hpp"
#include "tests/support/layouts.hpp"

namespace engine::train {
namespace {

using program::Costs;
using program::Op;

constexpr int kBlocks = 12;
constexpr double kForwardMs = 4;

/// Twelve equal blocks between a small embedding and head.
nn::ModelConfig model() {
  nn::ModelConfig c;
  c.vocab_size = 64;
  c.context_length = 8;
  c.layers = kBlocks;
  c.hidden_size = 64;
  c.heads = c.kv_heads = 2;
  c.head_dim = 32;
  c.ffn_size = 256;
  return c;
}

/// Compute costs: forward 1, backward 2 of kForwardMs for each of the twelve blocks.
Costs compute_costs() {
  Costs costs;
  for (int block = 1; block <= kBlocks; ++block) {
    program::Instruction i;
    i.block = block;
    i.op = Op::forward;
    costs.set(i, kForwardMs);
    i.op = Op::backward;
    costs.set(i, 2 * kForwardMs);
  }
  return costs;
}

struct Measured {
  double step_ms = 0;
  double compute_ms = 0;  ///< busy
  double data_ms = 0;     ///< busy
  double simulated_ms = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Measured measure(bool wait_at_issue, double gigabits_per_s) {
  const Costs costs = compute_costs();
  const parallel::MeshShape mesh = {2, 1, 1, 1};
  Measured measured;
  comm::ThreadWorlds worlds(2, {60, 60});
  const auto join = [&](int rank) {
    return comm::emulate_links(worlds.join(rank), {0, gigabits_per_s});
  };
  comm::spawn_ranks(2, join, [&](comm::World& world) {
    parallel::RankContext::Options rank_options = test::rank_options(1);
    rank_options.device.device.type = DeviceType::meta;
    rank_options.mesh = mesh;
    parallel::RankContext rank(rank_options, world);
    SessionOptions options;
    options.zero_stage = 3;
    options.executor.sleep = &costs;
    options.executor.wait_at_issue = wait_at_issue;
    Session session(rank, nn::make_model(model()), options);
    const std::vector<nn::MicroBatch> micros = {session.make_batch(1, 8)};
    session.step(micros, 1e-3);
    std::vector<program::Trace> traces;
    std::vector<double> step_ms, compute_ms, data_ms;
    for (int s = 0; s < 5; ++s) {
      traces.emplace_back();
      const auto begin = std::chrono::steady_clock::now();
      session.step(micros, 1e-3, &traces.back());
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
      step_ms.push_back(ms.count());
      compute_ms.push_back(traces.back().busy_ms(program::Lane::compute));
      data_ms.push_back(traces.back().busy_ms(program::Lane::data));
    }
    const program::Simulation simulation = program::simulate(
        session.step_program(1), session.model_info(), Costs::measured(traces), options.executor);
    if (rank.rank() != 0) return;
    measured = {median(step_ms), median(compute_ms), median(data_ms), simulation.step_ms};
  });
  return measured;
}

bool near(double got, double expected) { return std::abs(got - expected) <= 0.05 * expected; }

bool holds(const Measured& serial, const Measured& overlapped) {
  const double bound = std::max(overlapped.compute_ms, overlapped.data_ms);
  return overlapped.step_ms <= 1.10 * bound && overlapped.step_ms <= 0.65 * serial.step_ms &&
         near(overlapped.simulated_ms, overlapped.step_ms) &&
         near(serial.simulated_ms, serial.step_ms);
}

TEST(Overlap, PrefetchedStage3HidesWhatItCan) {
  // A block of 12 hidden^2 and a little more f32: its gather from one peer takes kForwardMs.
  const double block_bytes = (12.0 * 64 * 64 + 13 * 64) * 4;
  const double gigabits_per_s = block_bytes / 2 * 8 / (kForwardMs * 1e6);
  // Whatever else the machine does only adds to the times: the best of a few tries counts.
  Measured serial;
  Measured overlapped;
  for (int attempt = 0; attempt < 5; ++attempt) {
    serial = measure(true, gigabits_per_s);
    overlapped = measure(false, gigabits_per_s);
    if (holds(serial, overlapped)) break;
  }
  const double bound = std::max(overlapped.compute_ms, overlapped.data_ms);
  const auto report = [](const Measured& m) {
    return fmt::format("step {:.1f} ms, compute {:.1f}, data lane {:.1f}, simulated {:.1f}",
                       m.step_ms, m.compute_ms, m.data_ms, m.simulated_ms);
  };
  SCOPED_TRACE("overlapped: " + report(overlapped) + "; serial: " + report(serial));
  EXPECT_NEAR(overlapped.data_ms, overlapped.compute_ms, 0.2 * bound);
  EXPECT_LE(overlapped.step_ms, 1.10 * bound);
  EXPECT_LE(overlapped.step_ms, 0.65 * serial.step_ms);
  EXPECT_TRUE(near(overlapped.simulated_ms, overlapped.step_ms));
  EXPECT_TRUE(near(serial.simulated_ms, serial.step_ms));
}

}  // namespace
}  // namespace engine::train

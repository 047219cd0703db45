#include "engine/program/executor.hpp"

#include <gtest/gtest.h>

#include "engine/optim/optimizer.hpp"
#include "engine/parallel/unit_plan.hpp"
#include "tests/support/fixture.hpp"

namespace engine::program {
namespace {

using test::Fixture;

/// A fixture's model with a program of our own around it.
struct Rig {
  Fixture fixture{"gpt2_tiny"};
  parallel::RankContext rank = test::cpu_rank();
  nn::Model model;
  std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer({});
  std::vector<parallel::Unit> units;
  ModelInfo info;

  explicit Rig(double dropout) {
    nn::ModelConfig config = fixture.model().config();
    config.dropout = dropout;
    model = nn::make_model(config);
    std::vector<parallel::BlockParameters> blocks;
    for (const auto& block : model) blocks.push_back({block->name(), block->parameters()});
    const parallel::UnitPlan plan = parallel::plan_units(blocks);
    units.reserve(plan.units.size());
    for (const auto& u : plan.units) {
      units.emplace_back(rank.device(), u.name, u.parameters, DType::f32);
      units.back().initialise();
      units.back().prepare_training(*optimizer, DType::f32);
      info.units.push_back(u.name);
    }
    for (std::size_t b = 0; b < model.size(); ++b) {
      info.blocks.push_back({model[b]->name(), plan.units_of_block[b], model[b]->makes_loss()});
    }
  }

  std::vector<nn::MicroBatch> batches(std::int64_t micro) {
    train::SessionOptions options;
    options.training = false;
    train::Session feeder(rank, nn::make_model(fixture.model().config()), options);
    return fixture.batches(feeder, 0, micro);
  }

  /// Loss, norm and all weights after one step of `plan`.
  std::pair<StepResult, std::vector<float>> step(StepPlan plan, std::int64_t micro) {
    const auto micros = batches(micro);
    plan.micros = static_cast<int>(micros.size());
    Executor executor(rank, model, info, units, optimizer.get());
    const StepResult result = executor.run(plan_step(info, plan), {micros, 1e-3, 1, 1.0});
    std::vector<float> weights;
    for (const parallel::Unit& unit : units) {
      for (int i = 0; i < unit.layout().entries(); ++i) {
        const auto values = unit.master(i).span<float>();
        weights.insert(weights.end(), values.begin(), values.end());
      }
    }
    return {result, weights};
  }
};

TEST(Executor, SplitBackwardAndRecomputationChangeNoBit) {
  for (const double dropout : {0.0, 0.1}) {
    const auto [plain, weights] = Rig(dropout).step({}, 4);
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      for (const bool split : {false, true}) {
        const auto [result, other] = Rig(dropout).step({1, recompute, split}, 4);
        EXPECT_EQ(result.loss, plain.loss);
        EXPECT_EQ(result.grad_norm, plain.grad_norm);
        EXPECT_EQ(other, weights);
      }
    }
  }
}

TEST(Executor, DropoutMasksDoNotDependOnTheMicroBatch) {
  const auto [whole, weights] = Rig(0.2).step({}, 12);
  for (const std::int64_t micro : {1, 3, 4}) {
    const auto [cut, other] = Rig(0.2).step({}, micro);
    EXPECT_NEAR(cut.loss, whole.loss, 2e-6 * whole.loss);
    EXPECT_NEAR(cut.grad_norm, whole.grad_norm, 1e-5 * whole.grad_norm);
  }
  const auto [none, unused] = Rig(0.0).step({}, 12);
  EXPECT_GT(std::abs(none.loss - whole.loss), 1e-4);
}

TEST(Executor, AStepWithoutTargetsIsSkipped) {
  Rig rig(0);
  auto micros = rig.batches(12);
  for (std::int32_t& t : micros[0].targets.span<std::int32_t>()) t = -1;
  Executor executor(rig.rank, rig.model, rig.info, rig.units, rig.optimizer.get());
  const StepResult result = executor.run(plan_step(rig.info, {}), {micros, 1e-3, 1, 1.0});
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.targets, 0);
  EXPECT_EQ(result.loss, 0);
}

TEST(Executor, ANonFiniteWeightSkipsTheStepAndLeavesTheRestBitwise) {
  Rig rig(0);
  const auto micros = rig.batches(12);
  rig.units[1].master(0).data<float>()[0] = std::numeric_limits<float>::infinity();
  rig.units[1].masters_changed();
  const auto before = rig.units[2].master(0).span<float>();
  const std::vector<float> saved(before.begin(), before.end());
  Executor executor(rig.rank, rig.model, rig.info, rig.units, rig.optimizer.get());
  const StepResult result = executor.run(plan_step(rig.info, {}), {micros, 1e-3, 1, 1.0});
  EXPECT_TRUE(result.skipped);
  EXPECT_TRUE(std::equal(saved.begin(), saved.end(), before.begin()));
  for (const float m : rig.units[2].moment(0, 0).span<float>()) EXPECT_EQ(m, 0);
}

TEST(Executor, RefusesAProgramForAnotherNumberOfMicroBatches) {
  Rig rig(0);
  const auto micros = rig.batches(6);
  Executor executor(rig.rank, rig.model, rig.info, rig.units, rig.optimizer.get());
  EXPECT_THROW(executor.run(plan_step(rig.info, {}), {micros, 1e-3}), Error);
}

TEST(Executor, TracesEveryInstruction) {
  Rig rig(0);
  const auto micros = rig.batches(6);
  const Program program = plan_step(rig.info, {.micros = 2});
  Executor executor(rig.rank, rig.model, rig.info, rig.units, rig.optimizer.get());
  Trace trace;
  executor.run(program, {micros, 1e-3}, &trace);
  ASSERT_EQ(trace.events.size(), program.code.size());
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    EXPECT_EQ(trace.events[i].instruction, program.code[i]);
    EXPECT_LE(trace.events[i].begin_ms, trace.events[i].end_ms);
  }
}

}  // namespace
}  // namespace engine::program

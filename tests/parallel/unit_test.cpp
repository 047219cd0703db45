#include "engine/parallel/unit.hpp"

#include <gtest/gtest.h>

#include "engine/nn/models.hpp"
#include "engine/parallel/unit_plan.hpp"
#include "tests/support/fixture.hpp"

namespace engine::parallel {
namespace {

using autograd::Init;
using autograd::Parameter;
using autograd::Role;

UnitPlan plan_of(nn::Model& model) {
  std::vector<BlockParameters> blocks;
  for (const auto& block : model) blocks.push_back({block->name(), block->parameters()});
  return plan_units(blocks);
}

TEST(UnitPlan, ATiedEmbeddingIsAUnitOfItsOwn) {
  nn::ModelConfig config = test::Fixture("gpt2_tiny").model().config();
  nn::Model tied = nn::make_model(config);
  const UnitPlan plan = plan_of(tied);
  ASSERT_EQ(plan.units.size(), 4U + 3U);  // blocks, embedding, tied table, head
  int table = -1;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    if (plan.units[static_cast<std::size_t>(u)].name == "transformer.wte.weight") table = u;
  }
  ASSERT_GE(table, 0);
  EXPECT_NE(
      std::count(plan.units_of_block.front().begin(), plan.units_of_block.front().end(), table), 0);
  EXPECT_NE(std::count(plan.units_of_block.back().begin(), plan.units_of_block.back().end(), table),
            0);
  config.tie_embeddings = false;
  nn::Model untied = nn::make_model(config);
  EXPECT_EQ(plan_of(untied).units.size(), 4U + 2U);
}

TEST(Unit, InitialValuesDependOnSeedAndNameAlone) {
  const auto values = [](std::uint64_t seed, std::vector<std::string> names) {
    RankContext rank = test::cpu_rank(2, seed);
    std::vector<std::unique_ptr<Parameter>> owned;
    std::vector<Parameter*> parameters;
    for (const std::string& name : names) {
      owned.push_back(std::make_unique<Parameter>(
          autograd::ParameterSpec{name, {7, 9}, Init::normal(0.02), Role::matrix, 1, 0}));
      parameters.push_back(owned.back().get());
    }
    Unit unit(rank.device(), "u", parameters, DType::f32);
    unit.initialise();
    const auto span = unit.master(static_cast<int>(names.size()) - 1).span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  const auto alone = values(1, {"w"});
  EXPECT_EQ(alone, values(1, {"other", "third", "w"}));
  EXPECT_NE(alone, values(2, {"w"}));
  EXPECT_NE(alone, values(1, {"v"}));
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i], static_cast<float>(0.02 * philox::normal(philox::key(1, "w"), i)));
  }
}

TEST(Unit, GradientsThatNobodyWroteCountAsZero) {
  RankContext rank = test::cpu_rank();
  Parameter a({"a", {4}, Init::ones(), Role::vector, 1, 0});
  Parameter b({"b", {4}, Init::ones(), Role::vector, 1, 0});
  Unit unit(rank.device(), "u", {&a, &b}, DType::bf16);
  unit.initialise();
  EXPECT_EQ(static_cast<float>(a.value().data<bf16>()[3]), 1.0F);
  unit.prepare_training(*optim::make_optimizer({}), DType::f32);
  const auto write = [](Parameter& p, float value) {
    for (float& g : p.grad_write().view.span<float>()) g = value;
  };
  unit.open_gradients();
  write(a, 1);
  write(b, 2);
  unit.close_gradients();
  EXPECT_EQ(unit.gradient_sum_of_squares(), 4 * 1 + 4 * 4);
  unit.open_gradients();
  write(a, 1);
  unit.close_gradients();
  EXPECT_EQ(unit.gradient_sum_of_squares(), 4);
}

}  // namespace
}  // namespace engine::parallel

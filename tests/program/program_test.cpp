#include "engine/program/program.hpp"

#include <gtest/gtest.h>

#include "engine/core/error.hpp"
#include "engine/program/access.hpp"
#include "engine/program/schedule.hpp"

namespace engine::program {
namespace {

ModelInfo model_of(int blocks) {
  ModelInfo model;
  for (int b = 0; b < blocks; ++b) {
    model.blocks.push_back({"block " + std::to_string(b), {b}, b + 1 == blocks});
    model.units.push_back("unit " + std::to_string(b));
  }
  model.blocks.front().units.push_back(blocks);  // a tied weight
  if (blocks > 1) model.blocks.back().units.push_back(blocks);
  model.units.emplace_back("tied");
  return model;
}

/// Every choice of sharding that makes another program.
std::vector<ShardPlan> all_shardings() {
  std::vector<ShardPlan> plans = {{}};
  for (int stage = 0; stage <= 3; ++stage) {
    for (const Every gather : {Every::micro, Every::step}) {
      for (const Every reduce : {Every::micro, Every::step}) {
        for (const int prefetch : {0, 1, 2, 99})
          plans.push_back({stage, 4, 2, gather, reduce, prefetch});
      }
    }
  }
  return plans;
}

std::vector<Program> all_programs(const ModelInfo& model) {
  std::vector<Program> programs;
  for (const ShardPlan& sharding : all_shardings()) {
    programs.push_back(plan_step(model, {2, Recompute::none, false, sharding}));
    programs.push_back(plan_step(model, {3, Recompute::full, true, sharding}));
    programs.push_back(plan_evaluation(model, 2, sharding));
  }
  for (const int micros : {1, 2, 5}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      for (const bool split : {false, true}) {
        programs.push_back(plan_step(model, {micros, recompute, split}));
      }
    }
    programs.push_back(plan_evaluation(model, micros));
  }
  return programs;
}

TEST(Planner, EveryProgramVerifies) {
  for (const int blocks : {1, 2, 7}) {
    const ModelInfo model = model_of(blocks);
    for (const Program& program : all_programs(model)) EXPECT_NO_THROW(verify(program, model));
  }
}

TEST(Verifier, RefusesAProgramWithAnyInstructionMissing) {
  const ModelInfo model = model_of(3);
  for (const Program& program : all_programs(model)) {
    for (std::size_t at = 0; at < program.code.size(); ++at) {
      Program mutated = program;
      mutated.code.erase(mutated.code.begin() + static_cast<std::ptrdiff_t>(at));
      // Micro-batches may share a reduction.
      if (program.code[at].op == Op::reduce_gradient && !program.code[at].last) continue;
      EXPECT_THROW(verify(mutated, model), Error) << program.code[at].str();
    }
  }
}

TEST(Verifier, NamesInstructionAndResource) {
  const ModelInfo model = model_of(2);
  Program program = plan_step(model, {.micros = 1});
  std::swap(program.code[1], program.code[2]);  // block 1 before block 0
  try {
    verify(program, model);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Forward block 1 micro 0"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("boundary 1 micro 0"), std::string::npos) << e.what();
  }
}

TEST(Verifier, RefusesARepeatedInstruction) {
  const ModelInfo model = model_of(3);
  for (const Program& program : all_programs(model)) {
    for (std::size_t at = 0; at < program.code.size(); ++at) {
      Program mutated = program;
      mutated.code.insert(mutated.code.begin() + static_cast<std::ptrdiff_t>(at), program.code[at]);
      EXPECT_THROW(verify(mutated, model), Error) << program.code[at].str();
    }
  }
}

TEST(Schedule, OneForwardOneBackwardBoundsWhatIsInFlight) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      for (int micros = 1; micros <= 9; ++micros) {
        std::vector<int> forward(static_cast<std::size_t>(micros));
        std::vector<int> backward(static_cast<std::size_t>(micros));
        int in_flight = 0;
        for (const Slot& slot : one_forward_one_backward(stages, stage, micros)) {
          const auto m = static_cast<std::size_t>(slot.micro);
          if (slot.kind == Slot::Kind::forward) {
            ++forward[m];
            ++in_flight;
          } else {
            EXPECT_EQ(forward[m], 1);
            ++backward[m];
            --in_flight;
          }
          EXPECT_LE(in_flight, stages - stage);
        }
        for (const auto& done : {forward, backward}) {
          EXPECT_EQ(done, std::vector<int>(static_cast<std::size_t>(micros), 1));
        }
      }
    }
  }
}

TEST(Program, SummaryNamesBlocksAndUnits) {
  const ModelInfo model = model_of(3);
  const std::string text = plan_step(model, {.micros = 2}).summary(model);
  EXPECT_NE(text.find("Forward         micro 0   block 0 .. block 2"), std::string::npos) << text;
  EXPECT_NE(text.find("OptimizerStep             unit 0 .. tied"), std::string::npos) << text;
}

}  // namespace
}  // namespace engine::program

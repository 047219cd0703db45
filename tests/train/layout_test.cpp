// One run, any layout: the fixtures on every mix of data-parallel degree, ZeRO stage and schedule.
#include <gtest/gtest.h>

#include "tests/support/covering_array.hpp"
#include "tests/support/layouts.hpp"

namespace engine::train {
namespace {

using program::Every;
using program::Recompute;
using test::Fixture;
using test::Layout;
using test::RunRecord;

const std::vector<const char*> kFixtures = {"gpt2_tiny", "gpt2_masked", "llama_tiny"};
const std::vector<const char*> kOptimizers = {"adamw", "sgd"};

/// A layout with the fixture and optimizer it is tried on.
struct Case {
  const char* fixture;
  const char* optimizer;
  Layout layout;
};

/// Every pair of choices at least once.
std::vector<Case> covering_cases() {
  const std::vector<int> data = {1, 2, 3, 4, 6};
  const std::vector<int> replicate = {1, 2, 3};
  const std::vector<std::int64_t> micro = {1, 2, 3, 6};
  const std::vector<int> prefetch = {0, 1, 3};
  const auto make = [&](const std::vector<int>& row) {
    const auto pick = [&](const auto& values, std::size_t f) {
      return values[static_cast<std::size_t>(row[f])];
    };
    Layout l;
    l.data = pick(data, 0);
    l.zero_stage = row[1];
    l.replicate = pick(replicate, 2);
    l.micro = pick(micro, 3);
    l.gather = row[4] == 0 ? Every::micro : Every::step;
    l.reduce = row[5] == 0 ? Every::micro : Every::step;
    l.prefetch_units = pick(prefetch, 6);
    l.recompute = row[7] == 0 ? Recompute::none : Recompute::full;
    return Case{pick(kFixtures, 8), pick(kOptimizers, 9), l};
  };
  const auto valid = [&](const std::vector<int>& row) {
    const Layout l = make(row).layout;
    return l.data % l.replicate == 0 && 12 % (l.data * l.micro) == 0;
  };
  std::vector<Case> cases;
  for (const auto& row : test::covering_array({5, 4, 3, 4, 2, 2, 3, 2, 3, 2}, valid)) {
    cases.push_back(make(row));
  }
  return cases;
}

double relative(double got, double expected) {
  return std::abs(got - expected) / std::abs(expected);
}

void expect_near(const RunRecord& got, const std::vector<StepResult>& expected,
                 const std::string& what, double loss_bound = 2e-6, double norm_bound = 1e-5) {
  ASSERT_EQ(got.steps.size(), expected.size());
  for (std::size_t s = 0; s < expected.size(); ++s) {
    EXPECT_LE(relative(got.steps[s].loss, expected[s].loss), loss_bound) << what << " step " << s;
    EXPECT_LE(relative(got.steps[s].grad_norm, expected[s].grad_norm), norm_bound)
        << what << " step " << s;
    EXPECT_EQ(got.steps[s].targets, expected[s].targets) << what << " step " << s;
  }
}

std::vector<StepResult> reference(const Fixture& fixture, const std::string& optimizer) {
  std::vector<StepResult> steps;
  for (const auto& e : fixture.read_json(optimizer + ".json")) {
    StepResult r;
    r.loss = e.at("loss");
    r.grad_norm = e.at("grad_norm");
    r.targets = e.at("targets");
    steps.push_back(r);
  }
  return steps;
}

TEST(Layouts, CoveringArrayMatchesTheReference) {
  for (const Case& c : covering_cases()) {
    const Fixture fixture(c.fixture);
    const RunRecord record =
        test::run_layout(fixture, c.optimizer, fixture.options(c.optimizer), c.layout);
    expect_near(record, reference(fixture, c.optimizer),
                fmt::format("{} {} {}", c.fixture, c.optimizer, c.layout.str()));
  }
}

/// Layouts that differ in everything that moves numbers.
std::vector<Layout> some_layouts() {
  return {{.data = 2, .zero_stage = 0, .micro = 2},
          {.data = 3, .zero_stage = 1, .micro = 1},
          {.data = 4, .replicate = 2, .zero_stage = 2, .micro = 1},
          {.data = 6, .replicate = 2, .zero_stage = 3, .micro = 2},
          {.data = 4, .zero_stage = 3, .micro = 1, .gather = Every::step, .reduce = Every::step}};
}

TEST(Layouts, DropoutMasksDoNotDependOnTheLayout) {
  for (const char* name : {"gpt2_tiny", "llama_tiny"}) {
    const Fixture fixture(name);
    const test::RunChoices choices = {.steps = 4, .dropout = 0.1};
    const SessionOptions options = fixture.options("adamw");
    const RunRecord one = test::run_layout(fixture, "adamw", options, {.micro = 12}, choices);
    for (const Layout& layout : some_layouts()) {
      expect_near(test::run_layout(fixture, "adamw", options, layout, choices), one.steps,
                  std::string(name) + " " + layout.str());
    }
  }
}

TEST(Layouts, RunsOfOneLayoutAreBitwiseEqual) {
  const Fixture fixture("gpt2_masked");
  for (const DType compute : {DType::f32, DType::bf16}) {
    SessionOptions options = fixture.options("adamw");
    options.compute = compute;
    for (const Layout& layout : some_layouts()) {
      const test::RunChoices choices = {.steps = 3, .dropout = 0.1};
      const RunRecord first = test::run_layout(fixture, "adamw", options, layout, choices);
      const RunRecord second = test::run_layout(fixture, "adamw", options, layout, choices);
      EXPECT_EQ(first.weights, second.weights) << layout.str();
      for (std::size_t s = 0; s < first.steps.size(); ++s) {
        EXPECT_EQ(first.steps[s].loss, second.steps[s].loss) << layout.str();
        EXPECT_EQ(first.steps[s].grad_norm, second.steps[s].grad_norm) << layout.str();
      }
    }
  }
}

TEST(Layouts, InitialWeightsAreBitwiseEqual) {
  for (const char* name : {"gpt2_tiny", "llama_tiny"}) {
    const Fixture fixture(name);
    const auto initial = [&](const Layout& layout) {
      std::map<std::string, std::vector<float>> weights;
      test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
        Session session(rank, nn::make_model(fixture.model().config()),
                        layout.apply(fixture.options("adamw")));
        auto mine = test::whole_weights(session);
        if (rank.rank() == 0) weights = std::move(mine);
      });
      return weights;
    };
    const auto one = initial({});
    for (const Layout& layout : some_layouts()) EXPECT_EQ(initial(layout), one) << layout.str();
  }
}

TEST(Layouts, Bf16TracksTheReference) {
  const Fixture fixture("gpt2_tiny");
  SessionOptions options = fixture.options("adamw");
  options.compute = DType::bf16;
  for (const Layout& layout : some_layouts()) {
    for (const DType wire : {DType::f32, DType::bf16}) {
      options.reduce_type = wire;
      const RunRecord record = test::run_layout(fixture, "adamw", options, layout);
      const auto expected = reference(fixture, "adamw");
      for (std::size_t s = 0; s < expected.size(); ++s) {
        EXPECT_LE(relative(record.steps[s].loss, expected[s].loss), 0.02) << layout.str();
      }
    }
  }
}

TEST(Layouts, MuonStepsWholeMatricesWhereverTheyLie) {
  const Fixture fixture("llama_tiny");
  SessionOptions options = fixture.options("adamw");
  options.optimizer.name = "muon";
  const test::RunChoices choices = {.steps = 4};
  const RunRecord one = test::run_layout(fixture, "adamw", options, {.micro = 12}, choices);
  for (const Layout& layout : some_layouts()) {
    expect_near(test::run_layout(fixture, "adamw", options, layout, choices), one.steps,
                layout.str(), 1e-5, 1e-4);
  }
}

TEST(Layouts, EvaluationCoversAllRanksBetweenSteps) {
  const Fixture fixture("gpt2_masked");
  for (const Layout& layout : some_layouts()) {
    std::vector<double> losses(static_cast<std::size_t>(layout.data));
    test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
      Session session(rank, nn::make_model(fixture.model().config()),
                      layout.apply(fixture.options("adamw")));
      fixture.load_weights(session);
      const auto batches = fixture.batches(session, 0, layout.micro);
      const double before = session.evaluate(batches).loss;
      const StepResult step = session.step(batches, 1e-3);
      EXPECT_NEAR(before, step.loss, 1e-12);
      losses[static_cast<std::size_t>(rank.rank())] = session.evaluate(batches).loss;
      EXPECT_LT(losses[static_cast<std::size_t>(rank.rank())], before);
    });
    for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
  }
}

}  // namespace
}  // namespace engine::train

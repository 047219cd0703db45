// The engine against an independent float64 trainer: logits, gradients, every step, final weights.
#include <gtest/gtest.h>

#include "tests/support/fixture.hpp"

namespace engine::train {
namespace {

using test::Fixture;

class Reference : public ::testing::TestWithParam<const char*> {};

TEST_P(Reference, LogitsOfTheFirstBatch) {
  const Fixture fixture(GetParam());
  parallel::RankContext rank = test::cpu_rank();
  SessionOptions options;
  options.training = false;
  Session session(rank, nn::make_model(fixture.model().config()), options);
  fixture.load_weights(session);
  const auto batches = fixture.batches(session, 0, fixture.global);
  const Tensor logits = session.generate(batches[0], nullptr, nn::kLogits);
  const auto file = checkpoint::SafetensorsFile::open(fixture.dir + "/step0.safetensors");
  EXPECT_LT(test::relative_l2(logits.span<float>(), test::read_all(file, "logits")), 5e-6);
}

TEST_P(Reference, GradientsOfTheFirstBatch) {
  const Fixture fixture(GetParam());
  const auto file = checkpoint::SafetensorsFile::open(fixture.dir + "/step0.safetensors");
  for (const std::int64_t micro : {1, 3, 12}) {
    parallel::RankContext rank = test::cpu_rank();
    Session session(rank, nn::make_model(fixture.model().config()), fixture.options("sgd"));
    fixture.load_weights(session);
    session.step(fixture.batches(session, 0, micro), 0.0);
    for (parallel::Unit& unit : session.units()) {
      for (int i = 0; i < unit.layout().entries(); ++i) {
        const std::string& name = unit.parameters()[static_cast<std::size_t>(i)]->name();
        EXPECT_LT(
            test::relative_l2(unit.gradient(i).span<float>(), test::read_all(file, "grad." + name)),
            1e-5)
            << name << " at micro-batch " << micro;
      }
    }
  }
}

struct Deviation {
  double loss = 0;
  double norm = 0;
  double lr = 0;
};

/// Trains the whole fixture; checks the final weights when `weights_bound` > 0.
Deviation run(const Fixture& fixture, const std::string& optimizer, std::int64_t micro,
              SessionOptions options, double weights_bound) {
  const nlohmann::json expected = fixture.read_json(optimizer + ".json");
  parallel::RankContext rank = test::cpu_rank();
  Session session(rank, nn::make_model(fixture.model().config()), options);
  fixture.load_weights(session);
  const optim::LrSchedule schedule = fixture.schedule(optimizer);
  Deviation d;
  for (std::int64_t s = 0; s < fixture.steps; ++s) {
    const double lr = schedule.at(s);
    const StepResult result = session.step(fixture.batches(session, s, micro), lr);
    const nlohmann::json& e = expected[static_cast<std::size_t>(s)];
    const auto relative = [&](const char* key, double got) {
      const double want = e.at(key);
      return std::abs(got - want) / std::abs(want);
    };
    d.loss = std::max(d.loss, relative("loss", result.loss));
    d.norm = std::max(d.norm, relative("grad_norm", result.grad_norm));
    d.lr = std::max(d.lr, relative("lr", lr));
    EXPECT_EQ(result.targets, e.at("targets"));
  }
  if (weights_bound > 0) {
    const auto file =
        checkpoint::SafetensorsFile::open(fixture.dir + "/" + optimizer + "_final.safetensors");
    for (parallel::Unit& unit : session.units()) {
      for (int i = 0; i < unit.layout().entries(); ++i) {
        const std::string& name = unit.parameters()[static_cast<std::size_t>(i)]->name();
        // A key bias has no true gradient: under Adam its noise is normalised to full steps.
        const bool key_bias = optimizer == "adamw" && name.ends_with("attn.c_attn.bias");
        EXPECT_LT(test::relative_l2(unit.master(i).span<float>(), test::read_all(file, name)),
                  key_bias ? 2e-3 : weights_bound)
            << name;
      }
    }
  }
  return d;
}

TEST_P(Reference, AdamWStepByStep) {
  const Fixture fixture(GetParam());
  for (const std::int64_t micro : {1, 3, 12}) {
    const Deviation d = run(fixture, "adamw", micro, fixture.options("adamw"), 5e-5);
    EXPECT_LT(d.loss, 2e-6) << "micro-batch " << micro;
    EXPECT_LT(d.norm, 1e-5) << "micro-batch " << micro;
    EXPECT_LT(d.lr, 1e-6);
  }
}

TEST_P(Reference, SgdStepByStep) {
  const Fixture fixture(GetParam());
  for (const std::int64_t micro : {1, 3, 12}) {
    const Deviation d = run(fixture, "sgd", micro, fixture.options("sgd"), 1e-6);
    EXPECT_LT(d.loss, 2e-6) << "micro-batch " << micro;
    EXPECT_LT(d.norm, 1e-5) << "micro-batch " << micro;
    EXPECT_LT(d.lr, 1e-6);
  }
}

TEST_P(Reference, RecomputationGivesTheSameSteps) {
  const Fixture fixture(GetParam());
  SessionOptions options = fixture.options("adamw");
  options.recompute = program::Recompute::full;
  const Deviation d = run(fixture, "adamw", 4, options, 5e-5);
  EXPECT_LT(d.loss, 2e-6);
  EXPECT_LT(d.norm, 1e-5);
}

TEST_P(Reference, Bf16TracksTheLoss) {
  const Fixture fixture(GetParam());
  SessionOptions options = fixture.options("adamw");
  options.compute = DType::bf16;
  const Deviation d = run(fixture, "adamw", 4, options, 0);
  EXPECT_LT(d.loss, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Reference,
                         ::testing::Values("gpt2_tiny", "gpt2_masked", "llama_tiny"),
                         [](const auto& fixture) { return std::string(fixture.param); });

}  // namespace
}  // namespace engine::train

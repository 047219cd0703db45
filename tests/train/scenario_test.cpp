// What went wrong in public with sharded data parallelism elsewhere, each as a test of its kind.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/layouts.hpp"

namespace engine::train {
namespace {

using program::Every;
using test::Fixture;
using test::Layout;
using test::RunRecord;

double relative(double got, double expected) {
  return std::abs(got - expected) / std::abs(expected);
}

/// Batches made by a rule: token and target of (sample, position).
struct Samples {
  std::int64_t global = 12;
  std::int64_t length = 16;
  std::int64_t vocab = 131;
  std::function<bool(std::int64_t sample, std::int64_t position)> ignored;

  std::vector<nn::MicroBatch> batches(Session& session, std::int64_t step,
                                      std::int64_t micro) const {
    const parallel::Mesh& mesh = session.rank().mesh();
    const std::int64_t rows = global / mesh.shape().data;
    std::vector<nn::MicroBatch> result;
    for (std::int64_t row = mesh.data() * rows; row < (mesh.data() + 1) * rows; row += micro) {
      nn::MicroBatch batch = session.make_batch(micro, length);
      batch.first_sample = step * global + row;
      auto tokens = batch.tokens.span<std::int32_t>();
      auto targets = batch.targets.span<std::int32_t>();
      for (std::int64_t i = 0; i < micro * length; ++i) {
        const std::int64_t sample = batch.first_sample + i / length;
        const std::int64_t at = i % length;
        const auto id = [&](std::int64_t t) {
          return static_cast<std::int32_t>((sample * 37 + t * 11 + t * t * sample) % vocab);
        };
        tokens[static_cast<std::size_t>(i)] = id(at);
        targets[static_cast<std::size_t>(i)] =
            ignored && ignored(sample % global, at) ? -1 : id(at + 1);
      }
      result.push_back(std::move(batch));
    }
    return result;
  }
};

nn::ModelConfig tiny_model(std::int64_t vocab = 131) {
  nn::ModelConfig c;
  c.family = nn::Family::gpt2;
  c.vocab_size = vocab;
  c.context_length = 16;
  c.layers = 2;
  c.hidden_size = 24;
  c.heads = c.kv_heads = 3;
  c.head_dim = 8;
  c.ffn_size = 40;
  c.tie_embeddings = true;
  return c;
}

SessionOptions sgd() {
  SessionOptions o;
  o.optimizer.name = "sgd";
  o.optimizer.weight_decay = 0;
  o.clip_grad_norm = 0;
  return o;
}

RunRecord run(const nn::ModelConfig& model, const Samples& samples, const SessionOptions& options,
              const Layout& layout, int steps = 3) {
  RunRecord record;
  test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
    Session session(rank, nn::make_model(model), layout.apply(options));
    std::vector<StepResult> results;
    for (int s = 0; s < steps; ++s) {
      results.push_back(session.step(samples.batches(session, s, layout.micro), 0.05));
    }
    auto weights = test::whole_weights(session);
    if (rank.rank() == 0) record = {std::move(results), std::move(weights)};
  });
  return record;
}

void expect_same_run(const RunRecord& got, const RunRecord& expected, const std::string& what) {
  for (std::size_t s = 0; s < expected.steps.size(); ++s) {
    EXPECT_LE(relative(got.steps[s].loss, expected.steps[s].loss), 2e-6) << what << " step " << s;
    EXPECT_LE(relative(got.steps[s].grad_norm, expected.steps[s].grad_norm), 1e-5)
        << what << " step " << s;
    EXPECT_EQ(got.steps[s].targets, expected.steps[s].targets) << what;
  }
  for (const auto& [name, weights] : expected.weights) {
    EXPECT_LT(test::relative_l2(got.weights.at(name), weights), 1e-5) << what << " " << name;
  }
}

/// DeepSpeed#1488, DeepSpeed#7981: with gradient accumulation the ZeRO stages disagree, or a
/// backward is lost. SGD without clipping shows every scale.
TEST(Scenario, AccumulationIsTheSameAtEveryStage) {
  const Samples samples;
  const RunRecord one = run(tiny_model(), samples, sgd(), {.micro = 12});
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::int64_t micro : {6, 3, 2, 1}) {  // 1, 2, 3 and 6 micro-batches
      for (const Every reduce : {Every::micro, Every::step}) {
        const Layout layout = {.data = 2, .zero_stage = stage, .micro = micro, .reduce = reduce};
        expect_same_run(run(tiny_model(), samples, sgd(), layout), one, layout.str());
      }
    }
  }
}

/// torchtitan#1842, #2206: ranks with few valid targets weigh as much as ranks with many.
TEST(Scenario, LossAndGradientAreOverAllValidTargets) {
  Samples samples;
  samples.ignored = [](std::int64_t sample, std::int64_t at) {
    return sample < 4 ? at != 3 && at != 9 : sample == 5;  // rank 0 of 3: nine in ten ignored
  };
  const RunRecord one = run(tiny_model(), samples, sgd(), {.micro = 12});
  EXPECT_EQ(one.steps[0].targets, 4 * 2 + 7 * 16);
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::int64_t micro : {1, 4}) {
      const Layout layout = {.data = 3, .zero_stage = stage, .micro = micro};
      expect_same_run(run(tiny_model(), samples, sgd(), layout), one, layout.str());
    }
  }
}

/// The extreme of the same kind: a rank, and then all ranks, without any target.
TEST(Scenario, RanksWithoutTargetsContributeNothing) {
  Samples samples;
  samples.ignored = [](std::int64_t sample, std::int64_t) { return sample < 6; };
  const RunRecord one = run(tiny_model(), samples, sgd(), {.micro = 12});
  const Layout layout = {.data = 2, .zero_stage = 3, .micro = 2};
  expect_same_run(run(tiny_model(), samples, sgd(), layout), one, layout.str());
  samples.ignored = [](std::int64_t, std::int64_t) { return true; };
  const RunRecord none = run(tiny_model(), samples, sgd(), layout);
  for (const StepResult& step : none.steps) EXPECT_TRUE(step.skipped);
  for (const auto& [name, weights] : none.weights) {
    for (const float w : weights) ASSERT_TRUE(std::isfinite(w)) << name;
  }
}

/// llm.c#524: the norm at ZeRO-1 is over the wrong shards.
TEST(Scenario, GradientNormIsThatOfTheWholeModelAtEveryStage) {
  const Samples samples;
  SessionOptions options = sgd();
  options.clip_grad_norm = 0.01;  // clips hard: a wrong norm shows in the weights too
  const RunRecord one = run(tiny_model(), samples, options, {.micro = 12});
  for (const int data : {2, 4, 6}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int replicate : {1, 2}) {
        const Layout layout = {
            .data = data, .replicate = replicate, .zero_stage = stage, .micro = 1};
        expect_same_run(run(tiny_model(), samples, options, layout), one, layout.str());
      }
    }
  }
}

/// Megatron-LM#656: embedding and head drift apart; here all copies of every value stay bitwise
/// equal on all ranks, overlap on.
TEST(Scenario, EveryRankHoldsTheSameTiedWeights) {
  const Samples samples;
  for (const int stage : {0, 1, 2, 3}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      SessionOptions options;
      options.compute = compute;
      const Layout layout = {.data = 4, .replicate = 2, .zero_stage = stage, .micro = 1};
      std::mutex mutex;
      std::set<std::string> copies;
      test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
        Session session(rank, nn::make_model(tiny_model()), layout.apply(options));
        for (int s = 0; s < 3; ++s) session.step(samples.batches(session, s, 1), 1e-2);
        session.evaluate(samples.batches(session, 3, 1));  // values are whole again
        std::string bytes;
        for (int b = 0; b < 2 + 2; ++b) {
          session.with_values(b, [&] {
            for (const parallel::Unit& unit : session.units()) {
              if (!unit.resident()) continue;
              for (const autograd::Parameter* p : unit.parameters()) {
                bytes.append(static_cast<const char*>(p->value().raw()), p->value().bytes());
              }
            }
          });
        }
        const std::scoped_lock lock(mutex);
        copies.insert(std::move(bytes));
      });
      EXPECT_EQ(copies.size(), 1U) << layout.str();
    }
  }
}

/// pytorch#176076: with a tied weight whose rows the ranks do not divide, the last rank never
/// steps.
TEST(Scenario, EveryRowOfAnUnevenTiedWeightMoves) {
  const Samples samples;
  for (const std::int64_t vocab : {131, 67, 5}) {
    Samples some = samples;
    some.vocab = vocab;
    const RunRecord one = run(tiny_model(vocab), some, sgd(), {.micro = 12}, 1);
    RunRecord start;
    test::on_ranks({}, [&](parallel::RankContext& rank) {
      Session session(rank, nn::make_model(tiny_model(vocab)), sgd());
      start.weights = test::whole_weights(session);
    });
    for (const int data : {2, 3, 4, 6}) {
      const Layout layout = {.data = data, .zero_stage = 3, .micro = 1};
      const RunRecord sharded = run(tiny_model(vocab), some, sgd(), layout, 1);
      expect_same_run(sharded, one, layout.str());
      const auto& before = start.weights.at("transformer.wte.weight");
      const auto& after = sharded.weights.at("transformer.wte.weight");
      for (std::int64_t row = 0; row < vocab; ++row) {
        const auto begin = static_cast<std::ptrdiff_t>(row * 24);
        EXPECT_FALSE(
            std::equal(before.begin() + begin, before.begin() + begin + 24, after.begin() + begin))
            << "row " << row << " of " << vocab << ", " << layout.str();
      }
    }
  }
}

/// A block of its own: y = x * scale, with one-element and empty parameters beside.
class Scale : public nn::Block {
 public:
  explicit Scale(std::unique_ptr<nn::Block> inner)
      : inner_(std::move(inner)),
        one_({"tiny.one", {1}, autograd::Init::ones(), autograd::Role::vector, 1, 0}),
        empty_({"tiny.empty", {0}, autograd::Init::zeros(), autograd::Role::vector, 1, 0}),
        three_({"tiny.three", {3}, autograd::Init::normal(1), autograd::Role::vector, 1, 0}) {}

  const std::string& name() const override { return inner_->name(); }
  std::vector<autograd::Parameter*> parameters() override {
    auto list = inner_->parameters();
    list.insert(list.begin(), {&one_, &empty_, &three_});
    return list;
  }
  void forward(autograd::Tape& tape, nn::BlockIO& io, const nn::BlockContext& context) override {
    inner_->forward(tape, io, context);
  }
  bool makes_loss() const override { return inner_->makes_loss(); }

 private:
  std::unique_ptr<nn::Block> inner_;
  autograd::Parameter one_;
  autograd::Parameter empty_;
  autograd::Parameter three_;
};

/// DeepSpeed#8279: parameters smaller than the rank count, and empty ones.
TEST(Scenario, ParametersSmallerThanTheRankCount) {
  const Samples samples;
  nn::ModelConfig model = tiny_model();
  model.hidden_size = 3;
  model.heads = model.kv_heads = 1;
  model.head_dim = 3;
  model.ffn_size = 2;
  const auto make = [&] {
    nn::Model blocks = nn::make_model(model);
    blocks[1] = std::make_unique<Scale>(std::move(blocks[1]));
    return blocks;
  };
  const auto train = [&](const Layout& layout) {
    RunRecord record;
    test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
      Session session(rank, make(), layout.apply(SessionOptions{}));
      std::vector<StepResult> steps;
      for (int s = 0; s < 3; ++s) {
        steps.push_back(session.step(samples.batches(session, s, layout.micro), 1e-3));
      }
      auto weights = test::whole_weights(session);
      if (rank.rank() == 0) record = {std::move(steps), std::move(weights)};
    });
    return record;
  };
  const RunRecord one = train({.micro = 12});
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int data : {4, 6}) {
      const Layout layout = {.data = data, .zero_stage = stage, .micro = 1};
      const RunRecord many = train(layout);
      for (std::size_t s = 0; s < one.steps.size(); ++s) {
        EXPECT_LE(relative(many.steps[s].loss, one.steps[s].loss), 2e-6) << layout.str();
        EXPECT_LE(relative(many.steps[s].grad_norm, one.steps[s].grad_norm), 1e-5) << layout.str();
      }
      EXPECT_EQ(many.weights.at("tiny.one"), one.weights.at("tiny.one"));
      EXPECT_EQ(many.weights.at("tiny.three"), one.weights.at("tiny.three"));
    }
  }
}

}  // namespace
}  // namespace engine::train

// Your own model and your own loop on the engine. The model learns the rule
// next = (5 * token + 3) mod 64 from sequences that follow it. Build it as CMakeLists.txt says.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/functions.hpp"
#include "engine/nn/block.hpp"
#include "engine/parallel/rank_context.hpp"
#include "engine/train/session.hpp"

namespace {

using namespace engine;  // short names for a short program
using autograd::Init;
using autograd::Parameter;
using autograd::Role;
using autograd::Tape;
using autograd::Value;
using nn::BlockContext;
using nn::BlockIO;

constexpr std::int64_t kVocabulary = 64;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kRows = 8;     // sequences in a micro-batch
constexpr std::int64_t kLength = 16;  // tokens in a sequence

// A model is a list of blocks. Between blocks, tensors travel by name in a BlockIO; inside a block
// you compose the functions of engine/autograd/functions.hpp. A block owns its parameters; the
// engine gives them memory and initial values, and finds their gradients.
class NamedBlock : public nn::Block {
 public:
  explicit NamedBlock(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  std::vector<Parameter*> parameters() override { return parameters_; }

 protected:
  // Names must be unique in the model: they key initial values and places in checkpoints.
  Parameter own(const std::string& name, Shape shape, Init init, Role role) {
    return Parameter({name_ + "." + name, shape, init, role});
  }
  void use(std::initializer_list<Parameter*> parameters) { parameters_ = parameters; }

 private:
  std::string name_;
  std::vector<Parameter*> parameters_;
};

class Embedding : public NamedBlock {
 public:
  Embedding() : NamedBlock("embedding") { use({&table_}); }

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    const Value x = autograd::embedding(tape, context.batch.tokens, table_, nullptr);
    io.set("hidden", x);
    io.set("skip", x);  // nobody touches it before the head: it passes the blocks between untouched
  }

 private:
  Parameter table_ = own("table", {kVocabulary, kWidth}, Init::normal(0.5), Role::embedding);
};

// hidden + W2 gelu(W1 norm(hidden))
class ResidualMlp : public NamedBlock {
 public:
  explicit ResidualMlp(int layer) : NamedBlock("mlp" + std::to_string(layer)) {
    use({&norm_, &norm_bias_, &up_, &up_bias_, &down_, &down_bias_});
  }

  void forward(Tape& tape, BlockIO& io, const BlockContext&) override {
    constexpr auto kLayout = autograd::WeightLayout::in_out;
    const Value x = io.get("hidden");
    Value h = autograd::layer_norm(tape, x, norm_, norm_bias_, 1e-5);
    h = autograd::gelu(tape, autograd::linear(tape, h, up_, &up_bias_, kLayout));
    h = autograd::linear(tape, h, down_, &down_bias_, kLayout);
    io.set("hidden", autograd::add(tape, x, h));
  }

 private:
  Parameter norm_ = own("norm", {kWidth}, Init::ones(), Role::vector);
  Parameter norm_bias_ = own("norm_bias", {kWidth}, Init::zeros(), Role::vector);
  Parameter up_ = own("up", {kWidth, 4 * kWidth}, Init::normal(0.1), Role::matrix);
  Parameter up_bias_ = own("up_bias", {4 * kWidth}, Init::zeros(), Role::vector);
  Parameter down_ = own("down", {4 * kWidth, kWidth}, Init::normal(0.1), Role::matrix);
  Parameter down_bias_ = own("down_bias", {kWidth}, Init::zeros(), Role::vector);
};

class Head : public NamedBlock {
 public:
  Head() : NamedBlock("head") { use({&weight_}); }

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    const Value x = autograd::add(tape, io.get("hidden"), io.get("skip"));
    // Loss and gradient in one pass. grad_scale makes gradients those of the mean over the step.
    context.losses->loss += autograd::softmax_cross_entropy_head(
        tape, x, weight_, context.batch.targets, context.grad_scale);
  }
  bool makes_loss() const override { return true; }

 private:
  Parameter weight_ = own("weight", {kVocabulary, kWidth}, Init::normal(0.1), Role::embedding);
};

nn::Model make_model() {
  nn::Model model;
  model.push_back(std::make_unique<Embedding>());
  model.push_back(std::make_unique<ResidualMlp>(0));
  model.push_back(std::make_unique<ResidualMlp>(1));
  model.push_back(std::make_unique<Head>());
  return model;
}

// The data of a step: two micro-batches, whose gradients are accumulated. Samples are numbered
// through a run, so that the data depends on the step alone.
std::vector<nn::MicroBatch> make_step(train::Session& session, std::int64_t step) {
  std::vector<nn::MicroBatch> micros;
  for (std::int64_t m = 0; m < 2; ++m) {
    nn::MicroBatch batch = session.make_batch(kRows, kLength);
    batch.first_sample = (step * 2 + m) * kRows;
    const auto tokens = batch.tokens.span<std::int32_t>();
    const auto targets = batch.targets.span<std::int32_t>();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / kLength;
      const bool first = static_cast<std::int64_t>(i) % kLength == 0;
      tokens[i] = first ? static_cast<std::int32_t>((batch.first_sample + row) * 7 % kVocabulary)
                        : targets[i - 1];
      targets[i] = static_cast<std::int32_t>((5 * tokens[i] + 3) % kVocabulary);
    }
    micros.push_back(std::move(batch));
  }
  return micros;
}

int run() {
  parallel::RankContext rank({.device = {.seed = 1}});
  train::SessionOptions options;
  options.optimizer.name = "adamw";
  options.optimizer.weight_decay = 0.01;
  constexpr double kLearningRate = 3e-3;
  constexpr std::int64_t kSteps = 100;

  train::Session session(rank, make_model(), options);
  const double before = session.evaluate(make_step(session, 0)).loss;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const train::StepResult result = session.step(make_step(session, step), kLearningRate);
    if (step % 10 == 0) std::printf("step %3d  loss %.4f\n", static_cast<int>(step), result.loss);
  }
  const double after = session.evaluate(make_step(session, 0)).loss;
  std::printf("loss %.4f before training, %.4f after\n", before, after);

  // Save, load into a new session, and let both go on: they stay equal to the last bit.
  const auto dir = std::filesystem::path("embed_checkpoint");
  std::filesystem::remove_all(dir);
  session.save(dir.string());
  train::Session resumed(rank, make_model(), options);
  resumed.load(dir.string());
  for (std::int64_t step = kSteps; step < kSteps + 5; ++step) {
    const double one = session.step(make_step(session, step), kLearningRate).loss;
    const double other = resumed.step(make_step(resumed, step), kLearningRate).loss;
    if (one != other) {
      std::printf("step %d: loss %.9g, resumed %.9g\n", static_cast<int>(step), one, other);
      return 1;
    }
  }
  std::printf("the resumed session gives the same losses\n");
  return after < before / 4 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {  // engine::Error says what went wrong and where
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}

#pragma once
// What the model families share.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/models.hpp"

namespace engine::nn::detail {

using autograd::Init;
using autograd::Parameter;
using autograd::ParameterSpec;
using autograd::Role;
using autograd::Tape;
using autograd::Value;

inline constexpr double kInitStddev = 0.02;

/// A block that owns its parameters, some of them together with another block.
class BlockBase : public Block {
 public:
  explicit BlockBase(std::string name) : name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> result;
    for (const auto& p : parameters_) result.push_back(p.get());
    return result;
  }

 protected:
  Parameter& add(ParameterSpec spec) { return share(std::make_shared<Parameter>(std::move(spec))); }
  Parameter& share(std::shared_ptr<Parameter> parameter) {
    parameters_.push_back(std::move(parameter));
    return *parameters_.back();
  }

 private:
  std::string name_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
};

/// Factor on the initial weights of projections back into the residual stream.
inline double residual_scale(const ModelConfig& c) {
  return 1 / std::sqrt(2.0 * static_cast<double>(c.layers));
}

/// The blocks of a language model around its embedding table, which the head shares when tied.
template <class Embedding, class Layer, class Head>
Model assemble(const ModelConfig& config, const char* embedding_name) {
  const auto table = [&](const char* name) {
    return std::make_shared<Parameter>(ParameterSpec{
        name, {config.vocab_size, config.hidden_size}, Init::normal(kInitStddev), Role::embedding});
  };
  const auto embedding = table(embedding_name);
  Model model;
  model.push_back(std::make_unique<Embedding>(config, embedding));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    model.push_back(std::make_unique<Layer>(config, i));
  }
  model.push_back(
      std::make_unique<Head>(config, config.tie_embeddings ? embedding : table("lm_head.weight")));
  return model;
}

/// Mask of a dropout site: the key is a function of the seed and the site's name.
inline ops::Dropout dropout_at(const BlockContext& context, double rate, const std::string& site) {
  if (!context.training() || rate <= 0) return {};
  return {static_cast<float>(rate), philox::key(context.device.seed(), "dropout/" + site),
          context.batch.first_sample};
}

inline std::int64_t first_position(const BlockContext& context) {
  return context.cache != nullptr ? context.cache->length() : 0;
}

/// The head of a language model: loss in training and evaluation, logits in generation.
inline void finish(Tape& tape, BlockIO& io, const BlockContext& context, const Value& hidden,
                   Parameter& weight) {
  if (context.pass == Pass::generate) {
    io.set(kLogits, {autograd::logits(tape, hidden, weight), -1});
  } else {
    context.losses->loss += autograd::softmax_cross_entropy_head(
        tape, hidden, weight, context.batch.targets, context.grad_scale);
  }
  io.erase(kHidden);
}

}  // namespace engine::nn::detail

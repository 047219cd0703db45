#include "common.hpp"

namespace engine::nn {
namespace {

using namespace detail;  // NOLINT(google-build-using-namespace): a private header's names
using autograd::WeightLayout;

class LlamaEmbedding : public BlockBase {
 public:
  LlamaEmbedding(const ModelConfig& c, std::shared_ptr<Parameter> table)
      : BlockBase("embedding"), dropout_(c.dropout), table_(share(std::move(table))) {}

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    const Value x = autograd::embedding(tape, context.batch.tokens, table_, nullptr);
    io.set(kHidden, autograd::dropout(tape, x, dropout_at(context, dropout_, name())));
  }
  bool backward_reads_weights() const override { return false; }

 private:
  double dropout_;
  Parameter& table_;
};

class LlamaBlock : public BlockBase {
 public:
  LlamaBlock(const ModelConfig& c, std::int64_t layer)
      : BlockBase("block " + std::to_string(layer)),
        layer_(layer),
        prefix_("model.layers." + std::to_string(layer) + "."),
        eps_(c.norm_eps),
        theta_(c.rope_theta),
        dropout_(c.dropout),
        shape_{c.heads, c.kv_heads, c.head_dim},
        norm_1_(norm("input_layernorm.weight", c)),
        q_(matrix("self_attn.q_proj.weight", c.heads * c.head_dim, c.hidden_size)),
        k_(matrix("self_attn.k_proj.weight", c.kv_heads * c.head_dim, c.hidden_size)),
        v_(matrix("self_attn.v_proj.weight", c.kv_heads * c.head_dim, c.hidden_size)),
        o_(matrix("self_attn.o_proj.weight", c.hidden_size, c.heads * c.head_dim,
                  residual_scale(c))),
        norm_2_(norm("post_attention_layernorm.weight", c)),
        gate_(matrix("mlp.gate_proj.weight", c.ffn_size, c.hidden_size)),
        up_(matrix("mlp.up_proj.weight", c.ffn_size, c.hidden_size)),
        down_(matrix("mlp.down_proj.weight", c.hidden_size, c.ffn_size, residual_scale(c))) {}

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    const auto linear = [&](const Value& x, Parameter& w) {
      return autograd::linear(tape, x, w, nullptr, WeightLayout::out_in);
    };
    const auto rotate = [&](const Value& x) {
      return autograd::rope(tape, x, shape_.head_dim, theta_, first_position(context));
    };
    Value x = io.get(kHidden);
    Value h = autograd::rms_norm(tape, x, norm_1_, eps_);
    const Value q = rotate(linear(h, q_));
    Value k = rotate(linear(h, k_));
    Value v = linear(h, v_);
    if (context.cache != nullptr) {
      auto [keys, values] = context.cache->append(layer_, k.tensor, v.tensor);
      k = {keys};
      v = {values};
    }
    h = autograd::attention(tape, q, k, v, shape_,
                            dropout_at(context, dropout_, prefix_ + "probabilities"));
    h = dropped(tape, linear(h, o_), context, "self_attn");
    x = autograd::add(tape, x, h);
    h = autograd::rms_norm(tape, x, norm_2_, eps_);
    h = autograd::swiglu(tape, linear(h, gate_), linear(h, up_));
    h = dropped(tape, linear(h, down_), context, "mlp");
    io.set(kHidden, autograd::add(tape, x, h));
  }

 private:
  Parameter& norm(const std::string& name, const ModelConfig& c) {
    return add({prefix_ + name, {c.hidden_size}, Init::ones(), Role::vector});
  }
  Parameter& matrix(const std::string& name, std::int64_t out, std::int64_t in, double scale = 1) {
    return add({prefix_ + name, {out, in}, Init::normal(kInitStddev * scale), Role::matrix});
  }
  Value dropped(Tape& tape, const Value& x, const BlockContext& context, const char* site) const {
    return autograd::dropout(tape, x, dropout_at(context, dropout_, prefix_ + site));
  }

  std::int64_t layer_;
  std::string prefix_;
  double eps_;
  double theta_;
  double dropout_;
  autograd::AttentionShape shape_;
  Parameter &norm_1_, &q_, &k_, &v_, &o_, &norm_2_, &gate_, &up_, &down_;
};

class LlamaHead : public BlockBase {
 public:
  LlamaHead(const ModelConfig& c, std::shared_ptr<Parameter> weight)
      : BlockBase("head"),
        eps_(c.norm_eps),
        norm_(add({"model.norm.weight", {c.hidden_size}, Init::ones(), Role::vector})),
        weight_(share(std::move(weight))) {}

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    finish(tape, io, context, autograd::rms_norm(tape, io.get(kHidden), norm_, eps_), weight_);
  }
  bool makes_loss() const override { return true; }

 private:
  double eps_;
  Parameter& norm_;
  Parameter& weight_;
};

}  // namespace

Model make_llama(const ModelConfig& config) {
  return assemble<LlamaEmbedding, LlamaBlock, LlamaHead>(config, "model.embed_tokens.weight");
}

Model make_model(const ModelConfig& config) {
  config.validate();
  return config.family == Family::gpt2 ? make_gpt2(config) : make_llama(config);
}

}  // namespace engine::nn

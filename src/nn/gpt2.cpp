#include "common.hpp"

namespace engine::nn {
namespace {

using namespace detail;  // NOLINT(google-build-using-namespace): a private header's names
using autograd::WeightLayout;

class Gpt2Embedding : public BlockBase {
 public:
  Gpt2Embedding(const ModelConfig& c, std::shared_ptr<Parameter> table)
      : BlockBase("embedding"),
        dropout_(c.dropout),
        table_(share(std::move(table))),
        positions_(add({"transformer.wpe.weight",
                        {c.context_length, c.hidden_size},
                        Init::normal(kInitStddev),
                        Role::embedding})) {}

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    const Value x = autograd::embedding(tape, context.batch.tokens, table_, &positions_,
                                        first_position(context));
    io.set(kHidden, autograd::dropout(tape, x, dropout_at(context, dropout_, name())));
  }
  bool backward_reads_weights() const override { return false; }

 private:
  double dropout_;
  Parameter& table_;
  Parameter& positions_;
};

class Gpt2Block : public BlockBase {
 public:
  Gpt2Block(const ModelConfig& c, std::int64_t layer)
      : BlockBase("block " + std::to_string(layer)),
        layer_(layer),
        prefix_("transformer.h." + std::to_string(layer) + "."),
        eps_(c.norm_eps),
        dropout_(c.dropout),
        shape_{c.heads, c.heads, c.head_dim},
        norm_1_(vector("ln_1.weight", c.hidden_size, Init::ones())),
        norm_1_bias_(vector("ln_1.bias", c.hidden_size, Init::zeros())),
        qkv_(matrix("attn.c_attn.weight", c.hidden_size, 3 * c.hidden_size, 1, 3)),
        qkv_bias_(vector("attn.c_attn.bias", 3 * c.hidden_size, Init::zeros())),
        proj_(matrix("attn.c_proj.weight", c.hidden_size, c.hidden_size, residual_scale(c))),
        proj_bias_(vector("attn.c_proj.bias", c.hidden_size, Init::zeros())),
        norm_2_(vector("ln_2.weight", c.hidden_size, Init::ones())),
        norm_2_bias_(vector("ln_2.bias", c.hidden_size, Init::zeros())),
        fc_(matrix("mlp.c_fc.weight", c.hidden_size, c.ffn_size)),
        fc_bias_(vector("mlp.c_fc.bias", c.ffn_size, Init::zeros())),
        out_(matrix("mlp.c_proj.weight", c.ffn_size, c.hidden_size, residual_scale(c))),
        out_bias_(vector("mlp.c_proj.bias", c.hidden_size, Init::zeros())) {}

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    const auto linear = [&](const Value& x, Parameter& w, Parameter& b) {
      return autograd::linear(tape, x, w, &b, WeightLayout::in_out);
    };
    Value x = io.get(kHidden);
    Value h = autograd::layer_norm(tape, x, norm_1_, norm_1_bias_, eps_);
    h = attend(tape, linear(h, qkv_, qkv_bias_), context);
    h = dropped(tape, linear(h, proj_, proj_bias_), context, "attn");
    x = autograd::add(tape, x, h);
    h = autograd::layer_norm(tape, x, norm_2_, norm_2_bias_, eps_);
    h = autograd::gelu(tape, linear(h, fc_, fc_bias_));
    h = dropped(tape, linear(h, out_, out_bias_), context, "mlp");
    io.set(kHidden, autograd::add(tape, x, h));
  }

 private:
  Parameter& vector(const std::string& name, std::int64_t size, Init init) {
    return add({prefix_ + name, {size}, init, Role::vector});
  }
  Parameter& matrix(const std::string& name, std::int64_t in, std::int64_t out, double scale = 1,
                    int sections = 1) {
    return add(
        {prefix_ + name, {in, out}, Init::normal(kInitStddev * scale), Role::matrix, sections, 1});
  }
  Value dropped(Tape& tape, const Value& x, const BlockContext& context, const char* site) const {
    return autograd::dropout(tape, x, dropout_at(context, dropout_, prefix_ + site));
  }
  Value attend(Tape& tape, const Value& qkv, const BlockContext& context) const {
    const ops::Dropout mask = dropout_at(context, dropout_, prefix_ + "probabilities");
    if (context.cache == nullptr) return autograd::attention_qkv(tape, qkv, shape_, mask);
    const std::int64_t c = shape_.heads * shape_.head_dim;
    const auto [k, v] = context.cache->append(layer_, qkv.tensor.slice(-1, c, 2 * c),
                                              qkv.tensor.slice(-1, 2 * c, 3 * c));
    return autograd::attention(tape, {qkv.tensor.slice(-1, 0, c)}, {k}, {v}, shape_, mask);
  }

  std::int64_t layer_;
  std::string prefix_;
  double eps_;
  double dropout_;
  autograd::AttentionShape shape_;
  Parameter &norm_1_, &norm_1_bias_, &qkv_, &qkv_bias_, &proj_, &proj_bias_;
  Parameter &norm_2_, &norm_2_bias_, &fc_, &fc_bias_, &out_, &out_bias_;
};

class Gpt2Head : public BlockBase {
 public:
  Gpt2Head(const ModelConfig& c, std::shared_ptr<Parameter> weight)
      : BlockBase("head"),
        eps_(c.norm_eps),
        norm_(add({"transformer.ln_f.weight", {c.hidden_size}, Init::ones(), Role::vector})),
        norm_bias_(add({"transformer.ln_f.bias", {c.hidden_size}, Init::zeros(), Role::vector})),
        weight_(share(std::move(weight))) {}

  void forward(Tape& tape, BlockIO& io, const BlockContext& context) override {
    finish(tape, io, context, autograd::layer_norm(tape, io.get(kHidden), norm_, norm_bias_, eps_),
           weight_);
  }
  bool makes_loss() const override { return true; }

 private:
  double eps_;
  Parameter& norm_;
  Parameter& norm_bias_;
  Parameter& weight_;
};

}  // namespace

Model make_gpt2(const ModelConfig& config) {
  return assemble<Gpt2Embedding, Gpt2Block, Gpt2Head>(config, "transformer.wte.weight");
}

}  // namespace engine::nn

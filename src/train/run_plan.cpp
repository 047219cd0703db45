#include "engine/train/run_plan.hpp"

#include <algorithm>
#include <cmath>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/data/meta.hpp"

namespace engine::train {
namespace {

constexpr std::string_view kHuggingFace = "hf:";

void require(const Config& c, std::string_view key, std::string_view example) {
  ENGINE_CHECK(c.has(key), Errc::invalid_argument, "{} is required: add it, for example {}", key,
               example);
}

template <class T>
void only(std::string_view key, const T& got, const T& supported, std::string_view why) {
  ENGINE_CHECK(got == supported, Errc::invalid_argument,
               "{} = {}: this version supports only {} ({})", key, got, supported, why);
}

void check_required(const Config& c) {
  if (!c.model.init.starts_with(kHuggingFace)) {
    ENGINE_CHECK(c.model.init == "random", Errc::invalid_argument,
                 "model.init = \"{}\": expected \"random\" or \"hf:DIR\"", c.model.init);
    require(c, "model.family", "family = \"gpt2\" in [model]");
  }
  require(c, "batch.global", "global = 32 in [batch]");
  require(c, "data.train", "train = [\"train.bin\"] in [data]");
  ENGINE_CHECK(!c.data.train.empty(), Errc::invalid_argument,
               "data.train is empty: name at least one token file");
  for (const auto* files : {&c.data.train, &c.data.valid}) {
    ENGINE_CHECK(std::find(files->begin(), files->end(), "") == files->end(),
                 Errc::invalid_argument, "data.{} names a file \"\": expected a path",
                 files == &c.data.train ? "train" : "valid");
  }
  require(c, "train.steps", "steps = 1000 in [train]");
  require(c, "optimizer.lr", "lr = 6e-4 in [optimizer]");
}

void check_supported(const Config& c) {
  const std::string_view data_only = "it has data parallelism only";
  only("parallel.tensor", c.parallel.tensor, std::int64_t{1}, data_only);
  only("parallel.pipeline", c.parallel.pipeline, std::int64_t{1}, data_only);
  only("parallel.sequence_parallel", c.parallel.sequence_parallel, false, data_only);
  only("pipeline.schedule", c.pipeline.schedule, std::string("1f1b"), data_only);
  only("pipeline.chunks", c.pipeline.chunks, std::int64_t{1}, data_only);
  ENGINE_CHECK(c.pipeline.layers_per_stage.empty(), Errc::invalid_argument,
               "pipeline.layers_per_stage: this version runs one stage; leave it out");
  ENGINE_CHECK(c.memory.recompute != "selective", Errc::invalid_argument,
               "memory.recompute = \"selective\": this version supports \"none\" and \"full\"");
  ENGINE_CHECK(c.precision.compute != "fp16", Errc::invalid_argument,
               "precision.compute = \"fp16\": this version supports \"fp32\" and \"bf16\"");
  ENGINE_CHECK(
      c.precision.loss_scale == "dynamic", Errc::invalid_argument,
      "precision.loss_scale = {}: it is for precision.compute = \"fp16\", which this version "
      "does not support; leave it out",
      c.precision.loss_scale);
  ENGINE_CHECK(c.train.device != "cuda", Errc::invalid_argument,
               "train.device = \"cuda\": this build has no CUDA backend; use \"cpu\" or \"auto\"");
  ENGINE_CHECK(c.comm.backend != "nccl", Errc::invalid_argument,
               "comm.backend = \"nccl\": this build has no CUDA backend; use \"auto\"");
  only("checkpoint.async", c.checkpoint.async, false, "saves are synchronous");
  ENGINE_CHECK(c.metrics.tensorboard.empty(), Errc::invalid_argument,
               "metrics.tensorboard: this version writes metrics.jsonl only; leave it out");
  only("emulate.compute", c.emulate.compute, std::string("real"), "networks are emulated");
}

/// Takes a key from `source` unless the user set it; a contradiction is an error.
template <class T>
void adopt(const Config& c, std::string_view key, T& target, const T& source,
           const std::string& directory) {
  ENGINE_CHECK(!c.has(key) || target == source, Errc::invalid_argument,
               "{} = {} contradicts {}/config.json, which says {}: leave the key out", key, target,
               directory, source);
  target = source;
}

void adopt_hugging_face(Config& c, const std::string& directory) {
  const nn::ModelConfig hf = checkpoint::HfModel::open(directory).config();
  Config::Model& m = c.model;
  const auto take = [&](std::string_view key, auto& target, const auto& source) {
    adopt(c, key, target, source, directory);
  };
  take("model.family", m.family, std::string(nn::name(hf.family)));
  take("model.vocab_size", m.vocab_size, hf.vocab_size);
  take("model.context_length", m.context_length, hf.context_length);
  take("model.layers", m.layers, hf.layers);
  take("model.hidden_size", m.hidden_size, hf.hidden_size);
  take("model.heads", m.heads, hf.heads);
  take("model.kv_heads", m.kv_heads, hf.kv_heads);
  take("model.head_dim", m.head_dim, hf.head_dim);
  take("model.ffn_size", m.ffn_size, hf.ffn_size);
  take("model.norm_eps", m.norm_eps, hf.norm_eps);
  if (hf.family == nn::Family::llama) take("model.rope_theta", m.rope_theta, hf.rope_theta);
  take("model.tie_embeddings", m.tie_embeddings, hf.tie_embeddings);
}

void derive_shape(Config& c) {
  Config::Model& m = c.model;
  const bool gpt2 = m.family == "gpt2";
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.head_dim == 0) {
    ENGINE_CHECK(
        m.hidden_size % m.heads == 0, Errc::invalid_argument,
        "model.heads = {} does not divide model.hidden_size = {}: choose a divisor, or set "
        "model.head_dim (llama)",
        m.heads, m.hidden_size);
    m.head_dim = m.hidden_size / m.heads;
  }
  if (m.ffn_size == 0) {
    m.ffn_size = gpt2 ? 4 * m.hidden_size : (m.hidden_size * 8 / 3 + 63) / 64 * 64;
  }
  if (!c.has("model.tie_embeddings")) m.tie_embeddings = gpt2;
  if (m.context_length == 0) {
    m.context_length = c.batch.sequence_length > 0 ? c.batch.sequence_length : 1024;
  }
}

void check_vocabulary(Config& c) {
  for (const std::string& path : c.data.train) {
    const std::optional<data::DataMeta> meta = data::read_meta(path);
    if (!meta) continue;
    if (c.model.vocab_size == 0) c.model.vocab_size = meta->vocab_size;
    ENGINE_CHECK(
        c.model.vocab_size >= meta->vocab_size, Errc::invalid_argument,
        "model.vocab_size = {} is smaller than the vocabulary of {} ({} with tokenizer {}): "
        "set model.vocab_size = {} or more",
        c.model.vocab_size, path, meta->vocab_size, meta->tokenizer, meta->vocab_size);
  }
  ENGINE_CHECK(c.model.vocab_size > 0, Errc::invalid_argument,
               "model.vocab_size is required: {} has no meta.json beside it that would tell",
               c.data.train.front());
}

nn::ModelConfig model_of(const Config::Model& m) {
  nn::ModelConfig model;
  model.family = m.family == "gpt2" ? nn::Family::gpt2 : nn::Family::llama;
  model.vocab_size = m.vocab_size;
  model.context_length = m.context_length;
  model.layers = m.layers;
  model.hidden_size = m.hidden_size;
  model.heads = m.heads;
  model.kv_heads = m.kv_heads;
  model.head_dim = m.head_dim;
  model.ffn_size = m.ffn_size;
  model.norm_eps = m.norm_eps;
  model.rope_theta = m.rope_theta;
  model.tie_embeddings = m.tie_embeddings;
  model.dropout = m.dropout;
  model.validate();
  return model;
}

parallel::MeshShape mesh_of(const Config::Parallel& p) {
  constexpr std::int64_t kMostRanks = 1 << 16;
  ENGINE_CHECK(p.data <= kMostRanks, Errc::invalid_argument,
               "parallel.data = {}: expected at most {}", p.data, kMostRanks);
  ENGINE_CHECK(p.replicate <= p.data && p.data % p.replicate == 0, Errc::invalid_argument,
               "parallel.replicate = {} does not divide parallel.data = {}: data is replicate * "
               "shards; choose a divisor of data",
               p.replicate, p.data);
  return {static_cast<int>(p.data), static_cast<int>(p.replicate), static_cast<int>(p.tensor),
          static_cast<int>(p.pipeline)};
}

int resolve_batch(Config& c) {
  Config::Batch& b = c.batch;
  if (b.sequence_length == 0) b.sequence_length = c.model.context_length;
  ENGINE_CHECK(b.sequence_length <= c.model.context_length, Errc::invalid_argument,
               "batch.sequence_length = {} is longer than model.context_length = {}: shorten the "
               "sequences or lengthen the context",
               b.sequence_length, c.model.context_length);
  const std::int64_t per_rank = b.global / c.parallel.data;
  ENGINE_CHECK(per_rank > 0, Errc::invalid_argument,
               "batch.global = {} gives parallel.data = {} ranks less than a sequence each: use a "
               "larger batch or fewer ranks",
               b.global, c.parallel.data);
  if (b.micro == 0) b.micro = per_rank;
  ENGINE_CHECK(
      b.global % (c.parallel.data * b.micro) == 0, Errc::invalid_argument,
      "batch.global = {} is not a multiple of parallel.data * batch.micro = {} * {}: data * "
      "micro * accumulation must equal global",
      b.global, c.parallel.data, b.micro);
  constexpr std::int64_t kMostMicros = 65536;
  ENGINE_CHECK(
      per_rank / b.micro <= kMostMicros, Errc::invalid_argument,
      "batch.global = {} makes {} micro-batches of batch.micro = {} a step: at most {}; use a "
      "larger batch.micro",
      b.global, per_rank / b.micro, b.micro, kMostMicros);
  return static_cast<int>(per_rank / b.micro);
}

SessionOptions session_options(Config& c) {
  Config::Optimizer& o = c.optimizer;
  if (!c.has("optimizer.weight_decay")) o.weight_decay = optim::default_weight_decay(o.name);
  ENGINE_CHECK(o.betas.size() == 2, Errc::invalid_argument,
               "optimizer.betas has {} values: expected two, for example [0.9, 0.95]",
               o.betas.size());
  SessionOptions s;
  s.compute = c.precision.compute == "bf16" ? DType::bf16 : DType::f32;
  s.optimizer = {o.name, o.betas[0], o.betas[1], o.eps, o.momentum, o.weight_decay};
  s.moments = o.moments == "bf16" ? DType::bf16 : DType::f32;
  s.clip_grad_norm = o.clip_grad_norm;
  s.zero_stage = static_cast<int>(c.parallel.zero_stage);
  s.gather = c.parallel.gather == "step" ? program::Every::step : program::Every::micro;
  s.reduce = c.parallel.reduce == "step" ? program::Every::step : program::Every::micro;
  s.prefetch_units = static_cast<int>(c.parallel.prefetch_units);
  s.reduce_type = c.precision.reduce == "bf16" ? DType::bf16 : DType::f32;
  s.recompute = c.memory.recompute == "full" ? program::Recompute::full : program::Recompute::none;
  optim::make_optimizer(s.optimizer);  // checks the values
  return s;
}

optim::LrSchedule schedule_of(Config& c) {
  Config::LrSchedule& s = c.lr_schedule;
  if (s.decay_steps == 0) s.decay_steps = std::max<std::int64_t>(c.train.steps, 1);
  if (!c.has("lr_schedule.cooldown_steps")) s.cooldown_steps = c.train.steps / 10;
  ENGINE_CHECK(s.min_lr <= c.optimizer.lr, Errc::invalid_argument,
               "lr_schedule.min_lr = {} is above optimizer.lr = {}", s.min_lr, c.optimizer.lr);
  return {*optim::parse_schedule_kind(s.kind),
          c.optimizer.lr,
          s.min_lr,
          s.warmup_steps,
          s.decay_steps,
          s.cooldown_steps,
          c.train.steps};
}

}  // namespace

RunPlan resolve(Config config) {
  RunPlan plan;
  Config& c = config;
  check_required(c);
  check_supported(c);
  if (c.model.init.starts_with(kHuggingFace)) {
    plan.hugging_face = c.model.init.substr(kHuggingFace.size());
    adopt_hugging_face(c, plan.hugging_face);
  } else {
    derive_shape(c);
  }
  check_vocabulary(c);
  plan.model = model_of(c.model);
  plan.mesh = mesh_of(c.parallel);
  plan.micros = resolve_batch(c);
  plan.session = session_options(c);
  plan.schedule = schedule_of(c);
  plan.format = data::parse_token_format(c.data.format);
  plan.order = data::parse_order(c.data.order);
  plan.config = std::move(config);
  return plan;
}

}  // namespace engine::train

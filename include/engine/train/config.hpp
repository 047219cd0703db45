#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace engine::train {

/// A training run as written in TOML: one member per key, defaults as documented in docs/config.md.
/// Values of 0 or "" that stand for "derived from other keys" are filled by `resolve`.
struct Config {
  struct Model {
    std::string family;
    std::int64_t vocab_size = 0;
    std::int64_t context_length = 0;
    std::int64_t layers = 12;
    std::int64_t hidden_size = 768;
    std::int64_t heads = 12;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t ffn_size = 0;
    double norm_eps = 1e-5;
    double rope_theta = 10000.0;
    bool tie_embeddings = true;
    double dropout = 0.0;
    std::string init = "random";
  } model;
  struct Parallel {
    std::int64_t data = 1;
    std::int64_t replicate = 1;
    std::int64_t zero_stage = 0;
    std::string gather = "micro";
    std::string reduce = "micro";
    std::int64_t prefetch_units = 1;
    std::int64_t tensor = 1;
    bool sequence_parallel = false;
    std::int64_t pipeline = 1;
  } parallel;
  struct Pipeline {
    std::string schedule = "1f1b";
    std::int64_t chunks = 1;
    std::vector<std::int64_t> layers_per_stage;
  } pipeline;
  struct Memory {
    std::string recompute = "none";
  } memory;
  struct Batch {
    std::int64_t global = 0;
    std::int64_t micro = 0;
    std::int64_t sequence_length = 0;
  } batch;
  struct Precision {
    std::string compute = "fp32";
    std::string reduce = "fp32";
    std::string loss_scale = "dynamic";
  } precision;
  struct Optimizer {
    std::string name = "adamw";
    double lr = 0;
    std::vector<double> betas = {0.9, 0.95};
    double eps = 1e-8;
    double momentum = 0.9;
    double weight_decay = -1;
    double clip_grad_norm = 1.0;
    std::string moments = "fp32";
  } optimizer;
  struct LrSchedule {
    std::string kind = "cosine";
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;
    std::int64_t cooldown_steps = 0;
    double min_lr = 0;
  } lr_schedule;
  struct Data {
    std::vector<std::string> train;
    std::vector<std::string> valid;
    std::string format = "auto";
    std::string order = "shuffled";
    std::int64_t ignore_token = -1;
  } data;
  struct Train {
    std::int64_t steps = 0;
    std::int64_t seed = 1234;
    std::string device = "auto";
    std::int64_t threads = 0;
    std::int64_t eval_every = 0;
    std::int64_t eval_batches = 8;
  } train;
  struct Comm {
    std::string backend = "auto";
    std::int64_t timeout_s = 600;
    std::int64_t startup_timeout_s = 120;
  } comm;
  struct Checkpoint {
    std::string dir;
    std::int64_t every = 0;
    std::int64_t keep = 3;
    bool async = false;
  } checkpoint;
  struct Metrics {
    std::string jsonl;
    std::string tensorboard;
    bool log_samples = false;
  } metrics;
  struct Guard {
    std::int64_t max_skips = 20;
  } guard;
  struct Emulate {
    double latency_us = 0;
    double bandwidth_gbps = 0;
    std::string compute = "real";
  } emulate;

  std::set<std::string> given;  ///< dotted keys that the user set

  bool has(std::string_view key) const { return given.contains(std::string(key)); }
};

/// `--set` arguments: dotted key and value in TOML syntax; a bare word is a string.
using Overrides = std::span<const std::pair<std::string, std::string>>;

/// Parses a TOML file and applies overrides. Throws Errc::invalid_argument naming file, line, key,
/// expected and got; an unknown key names the nearest known one. Throws Errc::io if unreadable.
Config load_config(const std::string& path, Overrides overrides = {});
/// The same from text; `origin` stands for the file in errors.
Config parse_config(std::string_view toml, std::string_view origin, Overrides overrides = {});

/// Splits "key=value". Throws Errc::invalid_argument.
std::pair<std::string, std::string> parse_override(const std::string& argument);

/// The whole config as TOML that parses to the same config; values yet to be derived are left out.
std::string to_toml(const Config& config);

/// A key whose value differs between two configs, with both values as TOML.
struct ConfigChange {
  std::string_view key;
  std::string before;
  std::string after;
};
std::vector<ConfigChange> differences(const Config& before, const Config& after);

/// docs/config.md: every key with type, default and meaning, from the same table.
std::string config_reference();

}  // namespace engine::train

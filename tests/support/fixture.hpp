#pragma once
// The reference fixtures under tests/golden: initial weights, tokens, and what an independent
// float64 PyTorch trainer made of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/checkpoint/safetensors.hpp"
#include "engine/data/dataset.hpp"
#include "engine/nn/models.hpp"
#include "engine/optim/schedule.hpp"
#include "engine/train/session.hpp"

namespace engine::test {

struct Fixture {
  std::string dir;
  nlohmann::json data;
  std::int64_t T;
  std::int64_t global;
  std::int64_t steps;

  explicit Fixture(const std::string& name) : dir(ENGINE_TEST_DIR "/golden/" + name) {
    data = read_json("case.json");
    T = data.at("context_length");
    global = data.at("global_batch");
    steps = data.at("steps");
  }

  nlohmann::json read_json(const std::string& file) const {
    std::ifstream in(dir + "/" + file);
    return nlohmann::json::parse(in);
  }

  checkpoint::HfModel model() const { return checkpoint::HfModel::open(dir); }

  /// The rank's micro-batches of step `step`, `micro` rows each, in file order.
  std::vector<nn::MicroBatch> batches(train::Session& session, std::int64_t step,
                                      std::int64_t micro) const {
    const std::filesystem::path path = dir + "/tokens.bin";
    const data::TokenDataset tokens({&path, 1}, data::TokenFormat::raw_u16, T,
                                    data.at("vocab_size"), data.value("ignore_token", -1));
    std::vector<nn::MicroBatch> result;
    const parallel::Mesh& mesh = session.rank().mesh();
    const std::int64_t rows = global / mesh.shape().data;
    for (std::int64_t row = mesh.data() * rows; row < (mesh.data() + 1) * rows; row += micro) {
      nn::MicroBatch batch = session.make_batch(micro, T);
      batch.first_sample = step * global + row;
      for (std::int64_t r = 0; r < micro; ++r) {
        tokens.sample(batch.first_sample + r, batch.tokens.slice(0, r, r + 1).span<std::int32_t>(),
                      batch.targets.slice(0, r, r + 1).span<std::int32_t>());
      }
      result.push_back(std::move(batch));
    }
    return result;
  }

  train::SessionOptions options(const std::string& optimizer) const {
    const nlohmann::json& o = data.at(optimizer);
    train::SessionOptions s;
    s.optimizer.name = optimizer;
    if (optimizer == "adamw") {
      s.optimizer.beta1 = o.at("betas")[0];
      s.optimizer.beta2 = o.at("betas")[1];
      s.optimizer.eps = o.at("eps");
      s.optimizer.weight_decay = o.at("weight_decay");
    } else {
      s.optimizer.momentum = o.at("momentum");
      s.optimizer.weight_decay = 0;
    }
    s.clip_grad_norm = o.at("clip");
    return s;
  }

  optim::LrSchedule schedule(const std::string& optimizer) const {
    const nlohmann::json& o = data.at(optimizer);
    optim::LrSchedule s;
    s.kind = optim::ScheduleKind::cosine;
    s.lr = o.at("lr");
    s.min_lr = o.at("min_lr");
    s.warmup_steps = o.at("warmup");
    s.decay_steps = steps;
    s.total_steps = steps;
    return s;
  }

  /// Puts the fixture's initial weights into a session.
  void load_weights(train::Session& session) const {
    const checkpoint::HfModel hf = model();
    for (const parallel::Unit& unit : session.units()) {
      for (const parallel::ShardPiece& piece : unit.pieces()) {
        const auto& p = *unit.parameters()[static_cast<std::size_t>(piece.entry)];
        std::vector<float> values(static_cast<std::size_t>(p.shape().numel()));
        hf.read(p.name(), values);
        std::copy_n(values.begin() + piece.entry_begin, piece.numel,
                    unit.master().data<float>() + piece.shard_begin);
      }
    }
    session.weights_changed();
  }
};

inline parallel::RankContext::Options rank_options(int threads = 2, std::uint64_t seed = 1) {
  parallel::RankContext::Options options;
  options.device.threads = threads;
  options.device.seed = seed;
  options.device.logger = Logger({.level = LogLevel::off});
  return options;
}

inline parallel::RankContext cpu_rank(int threads = 2, std::uint64_t seed = 1) {
  return parallel::RankContext(rank_options(threads, seed));
}

/// ||got - expected|| / ||expected||.
template <class A, class B>
double relative_l2(const A& got, const B& expected) {
  double difference = 0;
  double norm = 0;
  auto g = std::begin(got);
  for (const double e : expected) {
    difference += (*g - e) * (*g - e);
    norm += e * e;
    ++g;
  }
  return std::sqrt(difference / norm);
}

inline std::vector<float> read_all(const checkpoint::SafetensorsFile& file,
                                   const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(file.at(name).numel()));
  file.read_f32(name, values);
  return values;
}

}  // namespace engine::test

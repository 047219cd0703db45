#pragma once
#include <string>

#include "engine/data/sample_order.hpp"
#include "engine/data/token_file.hpp"
#include "engine/nn/model_config.hpp"
#include "engine/optim/schedule.hpp"
#include "engine/parallel/mesh.hpp"
#include "engine/train/config.hpp"
#include "engine/train/session.hpp"

namespace engine::train {

/// A config that has been checked as a whole: every derived value filled in and every name turned
/// into what it stands for.
struct RunPlan {
  Config config;  ///< resolved: prints as a config that gives the same run
  nn::ModelConfig model;
  std::string hugging_face;  ///< directory of the initial weights, or empty
  SessionOptions session;
  optim::LrSchedule schedule;
  data::TokenFormat format = data::TokenFormat::automatic;
  data::OrderKind order = data::OrderKind::shuffled;
  parallel::MeshShape mesh;
  int micros = 1;  ///< micro-batches per step on a rank
};

/// Checks everything that can be checked before memory is taken: required keys, what this version
/// supports, shapes, batch arithmetic, vocabulary against the data's meta.json.
/// Throws Errc::invalid_argument naming key, value, reason and remedy.
RunPlan resolve(Config config);

}  // namespace engine::train

#pragma once
#include "engine/checkpoint/hugging_face.hpp"
#include "engine/train/session.hpp"

namespace engine::train::detail {

/// Puts the weights of a Hugging Face directory, which a checkpoint also is, into a session.
inline void load_hugging_face(Session& session, const std::string& directory) {
  const checkpoint::HfModel hf = checkpoint::HfModel::open(directory);
  for (parallel::Unit& unit : session.units()) {
    for (int i = 0; i < unit.layout().entries(); ++i) {
      hf.read(unit.parameters()[static_cast<std::size_t>(i)]->name(), unit.master(i).span<float>());
    }
    unit.masters_changed();
  }
}

}  // namespace engine::train::detail

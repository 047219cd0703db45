#pragma once
#include <algorithm>
#include <cmath>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/train/session.hpp"

namespace engine::train::detail {

/// Puts the weights of a Hugging Face directory, which a checkpoint also is, into a session.
inline void load_hugging_face(Session& session, const std::string& directory) {
  const checkpoint::HfModel hf = checkpoint::HfModel::open(directory);
  for (parallel::Unit& unit : session.units()) {
    for (int i = 0; i < unit.layout().entries(); ++i) {
      const std::string& name = unit.parameters()[static_cast<std::size_t>(i)]->name();
      const auto values = unit.master(i).span<float>();
      hf.read(name, values);
      ENGINE_CHECK(
          std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
          Errc::corrupt_data, "{}: tensor {} holds values that are not finite", directory, name);
    }
    unit.masters_changed();
  }
}

}  // namespace engine::train::detail

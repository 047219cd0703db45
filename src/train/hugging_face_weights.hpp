#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/train/session.hpp"

namespace engine::train::detail {

/// Puts the weights of a Hugging Face directory, which a checkpoint also is, into a session.
inline void load_hugging_face(Session& session, const std::string& directory) {
  const checkpoint::HfModel hf = checkpoint::HfModel::open(directory);
  std::vector<float> values;
  for (const parallel::Unit& unit : session.units()) {
    for (const parallel::ShardPiece& piece : unit.pieces()) {
      const autograd::Parameter& p = *unit.parameters()[static_cast<std::size_t>(piece.entry)];
      values.resize(static_cast<std::size_t>(p.shape().numel()));
      hf.read(p.name(), values);
      ENGINE_CHECK(
          std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
          Errc::corrupt_data, "{}: tensor {} holds values that are not finite", directory,
          p.name());
      std::copy_n(values.begin() + piece.entry_begin, piece.numel,
                  unit.master().data<float>() + piece.shard_begin);
    }
  }
  session.weights_changed();
}

}  // namespace engine::train::detail

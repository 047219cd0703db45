#pragma once
// Small argument types shared by the operators.
#include <cstdint>

#include "engine/core/philox.hpp"

namespace engine::ops {

/// What an output does with what it held: overwrite it (which may then be uninitialised), or add.
enum class Write : bool { overwrite, accumulate };

/// Whether a matrix is read as stored or transposed.
enum class Trans : bool { no, yes };

/// Which numbers a dropout mask is made of. Element e of sample s is dropped when the random word
/// of (key, e, s) is below rate * 2^32; what is kept is scaled by 1 / (1 - rate).
struct Dropout {
  float rate = 0;
  philox::Key key = 0;            ///< of the seed and the place in the model
  std::int64_t first_sample = 0;  ///< consumed-sample number of batch row 0; rows are consecutive

  bool active() const noexcept { return rate > 0; }
};

}  // namespace engine::ops

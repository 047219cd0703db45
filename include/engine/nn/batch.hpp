#pragma once
#include "engine/core/tensor.hpp"

namespace engine::nn {

/// Rows that go through a model together. Targets below 0 count for nothing.
struct MicroBatch {
  Tensor tokens;                  ///< [B,T] i32
  Tensor targets;                 ///< [B,T] i32; undefined for generation
  std::int64_t first_sample = 0;  ///< consumed-sample number of row 0; rows are consecutive
};

}  // namespace engine::nn

#pragma once
#include <span>

#include "engine/comm/communicator.hpp"

namespace engine::comm::detail {

/// Reduces `inputs` (addresses of `count` elements each, in rank order) and writes the result to
/// every address of `outputs`, which may be among the inputs. Narrow floats are added in f32 and
/// rounded once.
void reduce(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count,
            DType dtype, ReduceOp op);

}  // namespace engine::comm::detail

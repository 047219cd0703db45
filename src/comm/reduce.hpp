#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/comm/communicator.hpp"

namespace engine::comm::detail {

/// The reduction of `n` elements of the inputs, in the order of the inputs, goes to every output.
/// Narrow floats are reduced in f32 and rounded once; integers wrap; the maximum or minimum of
/// anything and NaN is NaN. An output may be one of the inputs.
void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, std::int64_t n);

}  // namespace engine::comm::detail

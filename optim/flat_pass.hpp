#pragma once
// One pass of an element-wise rule over the segments of a flat state, on the CPU.
#include <algorithm>
#include <vector>

#include "engine/core/function_ref.hpp"
#include "engine/optim/optimizer.hpp"

namespace engine::optim::detail {

/// Asserts that shapes, types, device and segments of `state` fit an optimizer of `moments`
/// moments.
void check(DeviceContext& device, const FlatState& state, std::size_t moments);

/// Calls `body(segment, begin, end)` for parts [begin, end) of segments that together cover them.
/// Parts end at multiples of a fixed chunk; chunks run on the device's threads.
void for_each_chunk(DeviceContext& device, std::int64_t numel, std::span<const Segment> segments,
                    FunctionRef<void(const Segment&, std::int64_t, std::int64_t)> body);

/// Moments are loaded as floats and stored in their type.
template <class Rule, class Moment>
void update_run(const Rule& rule, float decay, std::int64_t n, float* __restrict w,
                const float* __restrict g, Moment* __restrict m, Moment* __restrict v) {
  for (std::int64_t i = 0; i < n; ++i) {
    auto first = static_cast<float>(m[i]);
    if constexpr (Rule::kMoments == 2) {
      auto second = static_cast<float>(v[i]);
      rule(w[i], g[i], first, second, decay);
      v[i] = static_cast<Moment>(second);
    } else {
      rule(w[i], g[i], first, decay);
    }
    m[i] = static_cast<Moment>(first);
  }
}

template <class Rule, class Moment>
void flat_pass_as(DeviceContext& device, const FlatState& state, const Rule& rule, float decay,
                  bool skip_matrices) {
  float* w = state.master.data<float>();
  const float* g = state.gradient.data<float>();
  Moment* m = state.moments[0].data<Moment>();
  Moment* v = Rule::kMoments == 2 ? state.moments[1].data<Moment>() : nullptr;
  bf16* low = state.low_precision ? state.low_precision.data<bf16>() : nullptr;
  for_each_chunk(device, state.master.numel(), state.segments,
                 [&](const Segment& segment, std::int64_t begin, std::int64_t end) {
                   if (skip_matrices && segment.matrix) return;
                   constexpr std::int64_t kInCache =
                       1024;  // so that the copy reads what was just written
                   for (std::int64_t i = begin; i < end; i += kInCache) {
                     const std::int64_t n = std::min(kInCache, end - i);
                     update_run(rule, segment.decay ? decay : 1.0F, n, w + i, g + i, m + i,
                                v != nullptr ? v + i : nullptr);
                     if (low != nullptr) {
                       for (std::int64_t k = i; k < i + n; ++k) low[k] = static_cast<bf16>(w[k]);
                     }
                   }
                 });
}

/// Applies `rule` to all segments, or to all but the matrices.
template <class Rule>
void flat_pass(DeviceContext& device, const FlatState& state, const Rule& rule, float decay,
               bool skip_matrices = false) {
  if (state.moments[0].dtype() == DType::bf16) {
    flat_pass_as<Rule, bf16>(device, state, rule, decay, skip_matrices);
  } else {
    flat_pass_as<Rule, float>(device, state, rule, decay, skip_matrices);
  }
}

}  // namespace engine::optim::detail

#include "optim/flat_pass.hpp"

namespace engine::optim::detail {

namespace {
constexpr std::int64_t kChunk = 16384;
}

void check(DeviceContext& device, const FlatState& state, std::size_t moments) {
  const std::int64_t n = state.master.numel();
  const auto fits = [&](const Tensor& tensor, std::string_view what, bool may_be_bf16,
                        bool may_be_f32) {
    ENGINE_ASSERT(tensor && tensor.rank() == 1 && tensor.numel() == n && tensor.contiguous() &&
                      tensor.device() == device.device(),
                  "optimizer state \"{}\" is not a contiguous tensor [{}] on {} but {} on {}", what,
                  n, device.device().str(), tensor.shape().str(), tensor.device().str());
    ENGINE_ASSERT((tensor.dtype() == DType::f32 && may_be_f32) ||
                      (tensor.dtype() == DType::bf16 && may_be_bf16),
                  "optimizer state \"{}\" has type {}", what, name(tensor.dtype()));
  };
  ENGINE_ASSERT(device.device().type == DeviceType::cpu || device.device().is_meta(),
                "no optimizer kernels for {}", device.device().str());
  fits(state.master, "master", false, true);
  fits(state.gradient, "gradient", false, true);
  if (state.low_precision) fits(state.low_precision, "low_precision", true, false);
  ENGINE_ASSERT(state.moments.size() == moments, "{} moment tensors given, {} needed",
                state.moments.size(), moments);
  for (const Tensor& moment : state.moments) {
    fits(moment, "moments", true, true);
    ENGINE_ASSERT(moment.dtype() == state.moments[0].dtype(), "moments of different types");
  }
  std::int64_t end = 0;
  for (const Segment& segment : state.segments) {
    ENGINE_ASSERT(segment.begin >= end && segment.numel >= 0 && segment.numel <= n - segment.begin,
                  "segment [{}, +{}) after {} in a state of {}", segment.begin, segment.numel, end,
                  n);
    end = segment.begin + segment.numel;
  }
}

void for_each_chunk(DeviceContext& device, std::int64_t numel, std::span<const Segment> segments,
                    FunctionRef<void(const Segment&, std::int64_t, std::int64_t)> body) {
  device.pool().parallel_for((numel + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
    const std::int64_t chunk_begin = chunk * kChunk;
    const std::int64_t chunk_end = std::min(chunk_begin + kChunk, numel);
    auto segment = std::partition_point(segments.begin(), segments.end(), [&](const Segment& s) {
      return s.begin + s.numel <= chunk_begin;
    });
    for (; segment != segments.end() && segment->begin < chunk_end; ++segment) {
      const std::int64_t begin = std::max(chunk_begin, segment->begin);
      const std::int64_t end = std::min(chunk_end, segment->begin + segment->numel);
      if (begin < end) body(*segment, begin, end);
    }
  });
}

}  // namespace engine::optim::detail

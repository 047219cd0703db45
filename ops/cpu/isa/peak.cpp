#include <array>

#include "ops/cpu/isa/kernels.hpp"

ENGINE_ISA_BEGIN

double fma_loop(std::int64_t rounds) {
  constexpr int kBytes = ENGINE_CPU_LEVEL == 4 ? 64 : (ENGINE_CPU_LEVEL == 3 ? 32 : 16);
  constexpr int kLanes = kBytes / 4;
  constexpr int kChains = 12;  // enough to hide the latency of two units, and few enough to fit
  using Vector [[gnu::vector_size(kBytes)]] = float;
  std::array<Vector, kChains> sums;
  // Each starts differently, or the compiler would compute them once (and one, a fixed point,
  // never).
#pragma GCC unroll 12
  for (std::size_t i = 0; i < kChains; ++i) sums[i] = Vector{} + static_cast<float>(i + 2);
  const Vector a = Vector{} + 0.999F;
  const Vector b = Vector{} + 0.001F;
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = sum * a + b;
  }
  Vector total{};
  for (const auto& sum : sums) total += sum;
  // Never true; keeps the work.
  const double keep = total[0] < 0 ? 1.0 : 0.0;
  return static_cast<double>(rounds) * kChains * kLanes * 2 + keep;
}

ENGINE_ISA_END

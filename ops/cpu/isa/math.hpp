#pragma once
// Branch-free elementary functions that compilers vectorise.
#include <bit>
#include <cstdint>

#include "ops/cpu/isa/isa.hpp"

ENGINE_ISA_BEGIN

/// e^x within 2 ulp. Results below 2.5e-38 are 0, above the largest float infinity; NaN stays.
/// Source: Cody and Waite's reduction, Cephes' polynomial.
inline float exp(float x) {
  constexpr float kSmallest = -86.6F;
  constexpr float kLargest = 89.0F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  float y = x < kSmallest ? kSmallest : x;
  y = y > kLargest ? kLargest : y;
  const float shifted = y * 1.44269504088896341F + kRound;
  const float n = shifted - kRound;
  const float r = (y - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * (r * r) + r) + 1.0F;
  // 2^n as 2 * 2^(n-1), since n may be 128.
  const std::uint32_t bits =
      (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound) + 126U) << 23;
  const float result = (p + p) * std::bit_cast<float>(bits);
  return x < kSmallest ? 0.0F : result;
}

/// 1 / (1 + e^-x): accurate relative to its value for negative x too.
inline float sigmoid(float x) { return 1.0F / (1.0F + exp(-x)); }

/// Sigmoid and its complement, both without cancellation.
struct Sigmoid {
  float value;
  float complement;
};
inline Sigmoid sigmoid_pair(float x) {
  const float e = exp(-x);
  const float value = 1.0F / (1.0F + e);
  return {value, e > 1e30F ? 1.0F : e * value};
}

ENGINE_ISA_END

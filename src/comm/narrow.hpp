#pragma once
// Conversions of the narrow floats without branches, so that loops of them vectorise. The same bits
// as those of dtype.hpp.
#include <bit>
#include <cstdint>

#include "engine/core/dtype.hpp"

namespace engine::comm::detail {

/// `condition ? a : b`.
inline std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) noexcept {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

template <class T>
T widen(const T& x) noexcept {
  return x;
}
inline float widen(const bf16& x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline float widen(const f16& x) noexcept {
  const std::uint32_t magnitude = (x.bits & 0x7fffU) << 13;
  const std::uint32_t normal = magnitude + (112U << 23);
  const float small = std::bit_cast<float>(magnitude | 0x38800000U) - 0x1p-14F;
  std::uint32_t bits = select(magnitude < 0x00800000U, std::bit_cast<std::uint32_t>(small), normal);
  bits = select(magnitude >= 0x0f800000U, magnitude | 0x7f800000U, bits);
  return std::bit_cast<float>(bits | (x.bits & 0x8000U) << 16);
}

/// The bits of `value` as T, rounded to nearest even.
template <class T>
std::uint16_t narrow(float value) noexcept;
template <>
inline std::uint16_t narrow<bf16>(float value) noexcept {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
  return static_cast<std::uint16_t>(select(is_nan, (u >> 16) | 0x40U, rounded >> 16));
}
template <>
inline std::uint16_t narrow<f16>(float value) noexcept {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U;
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  std::uint32_t bits = select(magnitude < 0x38800000U, small, normal);
  bits = select(magnitude >= 0x477ff000U, 0x7c00U, bits);
  bits = select(magnitude > 0x7f800000U, 0x7e00U, bits);
  return static_cast<std::uint16_t>(bits | ((u >> 16) & 0x8000U));
}

}  // namespace engine::comm::detail

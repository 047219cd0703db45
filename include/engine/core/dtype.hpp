#pragma once
// Element types of tensors, and the 16-bit floats as value types.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace engine {

enum class DType : std::uint8_t { f32, bf16, f16, i32, i64, u16, u8 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
  }
  return "?";
}

/// bfloat16: the upper half of an IEEE float; conversion from float rounds to nearest even.
struct bf16 {
  std::uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
    bits = static_cast<std::uint16_t>(is_nan ? (u >> 16) | 0x40U : rounded >> 16);
  }
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE binary16; conversion from float rounds to nearest even, overflow gives infinity.
struct f16 {
  std::uint16_t bits = 0;

  constexpr f16() = default;
  constexpr explicit f16(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000U);
    const std::uint32_t magnitude = u & 0x7fffffffU;
    if (magnitude >= 0x7f800000U) {  // infinity or NaN
      bits = static_cast<std::uint16_t>(sign | 0x7c00U | (magnitude > 0x7f800000U ? 0x200U : 0U));
    } else if (magnitude >= 0x477ff000U) {  // rounds past the largest finite value
      bits = static_cast<std::uint16_t>(sign | 0x7c00U);
    } else if (magnitude < 0x38800000U) {  // subnormal or zero: let float addition do the rounding
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      bits =
          static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    } else {
      const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
      bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
    }
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fU;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return sign != 0 ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
};

/// `dtype_of<float>` is DType::f32, and so on.
template <class T>
inline constexpr DType dtype_of = DType::u8;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::u16;

}  // namespace engine

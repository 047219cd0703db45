#pragma once
// Counter-based random numbers: the same element of the same logical tensor gets the same number
// on every device, at every layout and in every order of evaluation.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Philox4x32-10).
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace engine::philox {

using Block = std::array<std::uint32_t, 4>;

/// 64-bit key of a stream; make it with `key`.
using Key = std::uint64_t;

/// Key of the stream `name` under `seed`: FNV-1a over the name, then a 64-bit finaliser.
constexpr Key key(std::uint64_t seed, std::string_view name) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  h ^= seed + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
  return h ^ (h >> 31);
}

/// Four random words for the 128-bit counter (low, high).
constexpr Block generate(Key key, std::uint64_t low, std::uint64_t high = 0) noexcept {
  Block c = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
             static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c[0];
    const std::uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// Random word of element `index` in the row `high` of a stream: word index % 4 of block index / 4.
constexpr std::uint32_t word(Key key, std::uint64_t index, std::uint64_t high = 0) noexcept {
  return generate(key, index / 4, high)[index % 4];
}

/// Maps a word to (0, 1): never 0, never 1.
constexpr double unit_interval(std::uint32_t word) noexcept {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

/// Two independent standard normals from two words (Box-Muller, in double).
inline std::array<double, 2> normal_pair(std::uint32_t a, std::uint32_t b) noexcept {
  const double radius = std::sqrt(-2.0 * std::log(unit_interval(a)));
  const double angle = 6.283185307179586476925286766559 * unit_interval(b);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Standard normal of element `index`; elements 2k and 2k+1 share one Box-Muller pair.
inline double normal(Key key, std::uint64_t index) noexcept {
  const Block block = generate(key, index / 4);
  const std::size_t pair = (index % 4) / 2 * 2;
  return normal_pair(block[pair], block[pair + 1])[index % 2];
}

}  // namespace engine::philox

#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace engine::comm::detail {

/// From this size on copies go past the caches, which would not hold them anyway.
inline constexpr std::size_t kStreamBytes = 4U << 20;

/// memcpy for what may be large: writing past the caches saves reading what is overwritten.
inline void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (bytes >= kStreamBytes) {
    constexpr std::size_t kLine = 64;
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      const auto* const source = reinterpret_cast<const __m128i*>(from);
      auto* const target = reinterpret_cast<__m128i*>(to);
      for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
    }
    _mm_sfence();
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace engine::comm::detail

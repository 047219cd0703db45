#pragma once
// Which sample comes next: pure arithmetic of (seed, samples, consumed), so the only cursor of a
// run is the number of samples it consumed.
#include <bit>
#include <cstdint>
#include <string_view>

#include "engine/core/error.hpp"
#include "engine/core/philox.hpp"

namespace engine::data {

enum class OrderKind : std::uint8_t { sequential, shuffled };

/// Throws: Errc::invalid_argument for a name other than "sequential" and "shuffled".
inline OrderKind parse_order(std::string_view text) {
  if (text == "sequential") return OrderKind::sequential;
  ENGINE_CHECK(text == "shuffled", Errc::invalid_argument,
               "sample order: expected shuffled or sequential, got \"{}\"", text);
  return OrderKind::shuffled;
}

/// Order of N samples, epoch after epoch. Shuffled: epoch e is a bijection of [0, N) keyed by
/// (seed, e), a Feistel network over the next even number of bits, walked until it falls below N.
/// It does not depend on the length of the run, the batch size or the layout.
/// Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002 (cycle walking).
class SampleOrder {
 public:
  SampleOrder(OrderKind kind, std::int64_t samples, std::uint64_t seed)
      : kind_(kind), samples_(samples), key_(philox::key(seed, "sample order")) {
    ENGINE_CHECK(samples >= 1, Errc::invalid_argument, "an order needs at least 1 sample, got {}",
                 samples);
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(samples - 1)));
    half_bits_ = (bits + 1) / 2;
  }

  OrderKind kind() const noexcept { return kind_; }
  std::int64_t samples() const noexcept { return samples_; }

  /// Sample that follows after `consumed` samples; `consumed` runs on across epochs.
  std::int64_t at(std::int64_t consumed) const {
    ENGINE_ASSERT(consumed >= 0, "consumed samples: {}", consumed);
    const std::int64_t position = consumed % samples_;
    if (kind_ == OrderKind::sequential || samples_ == 1) return position;
    const auto epoch = static_cast<std::uint64_t>(consumed / samples_);
    auto value = static_cast<std::uint64_t>(position);
    do {
      value = encrypt(value, epoch);
    } while (value >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(value);
  }

 private:
  static constexpr std::uint64_t kRounds = 8;

  std::uint64_t encrypt(std::uint64_t value, std::uint64_t epoch) const noexcept {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = philox::generate(key_, right | (round << 32), epoch)[0] & mask;
      const std::uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  OrderKind kind_;
  std::int64_t samples_;
  philox::Key key_;
  int half_bits_ = 0;
};

}  // namespace engine::data

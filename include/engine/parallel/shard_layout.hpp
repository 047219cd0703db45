#pragma once
// Where a unit's parameters lie in its flat buffer, and how the buffer is cut into equal shards.
// Pure arithmetic: no memory, no communication.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "engine/core/error.hpp"

namespace engine::parallel {

/// One parameter of a unit: its elements, and the smallest group of them that a shard boundary may
/// not cut (1: anywhere; a row; the whole parameter).
struct LayoutEntry {
  std::int64_t numel = 0;
  std::int64_t granularity = 1;
};

/// A run of one parameter's elements inside a shard.
struct ShardPiece {
  int entry = 0;
  std::int64_t entry_begin = 0;  ///< first element, counted inside the parameter
  std::int64_t shard_begin = 0;  ///< its place, counted from the shard's start
  std::int64_t numel = 0;
};

/// Places entries in order, each at a multiple of `alignment`, in a flat buffer of `shards` equal
/// parts such that every boundary respects the granularities. Elements outside entries are padding.
class ShardLayout {
 public:
  static constexpr std::int64_t kAlignment = 64;

  /// Units: elements. Throws Errc::internal on sizes or granularities that make no sense.
  ShardLayout(std::span<const LayoutEntry> entries, int shards, std::int64_t alignment = kAlignment)
      : entries_(entries.begin(), entries.end()), shards_(shards) {
    ENGINE_ASSERT(shards >= 1 && alignment >= 1, "{} shards, alignment {}", shards, alignment);
    std::int64_t total = 0;
    std::int64_t common = alignment;
    for (const LayoutEntry& e : entries_) {
      ENGINE_ASSERT(e.numel >= 0 && e.granularity >= 1 &&
                        (e.numel % e.granularity == 0 || e.granularity == 1),
                    "{} elements in groups of {}", e.numel, e.granularity);
      total += round_up(e.numel, alignment);
      if (e.granularity < e.numel) common = std::lcm(common, e.granularity);
    }
    shard_numel_ = round_up((total + shards - 1) / shards, alignment);
    while (!place(alignment)) {
      const std::int64_t grown = shard_numel_ + std::max(alignment, shard_numel_ / 64);
      shard_numel_ =
          round_up(grown, common <= std::max(alignment, grown / 16) ? common : alignment);
    }
  }

  int shards() const noexcept { return shards_; }
  std::int64_t shard_numel() const noexcept { return shard_numel_; }
  std::int64_t total_numel() const noexcept { return shard_numel_ * shards_; }
  int entries() const noexcept { return static_cast<int>(entries_.size()); }
  std::int64_t numel(int entry) const { return entries_[static_cast<std::size_t>(entry)].numel; }
  /// Start of an entry in the full buffer.
  std::int64_t offset(int entry) const { return offsets_[static_cast<std::size_t>(entry)]; }

  /// What shard `shard` holds, in order; empty parameters and padding are left out.
  std::vector<ShardPiece> pieces(int shard) const {
    const std::int64_t begin = shard * shard_numel_;
    const std::int64_t end = begin + shard_numel_;
    std::vector<ShardPiece> result;
    for (int i = 0; i < entries(); ++i) {
      const std::int64_t from = std::max(begin, offset(i));
      const std::int64_t to = std::min(end, offset(i) + numel(i));
      if (from < to) result.push_back({i, from - offset(i), from - begin, to - from});
    }
    return result;
  }

 private:
  static std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  /// Whether an entry at `offset` keeps its groups whole.
  bool fits(const LayoutEntry& e, std::int64_t offset) const {
    if (e.granularity == 1) return true;
    const std::int64_t first = (offset / shard_numel_ + 1) * shard_numel_;
    for (std::int64_t cut = first; cut < offset + e.numel; cut += shard_numel_) {
      if ((cut - offset) % e.granularity != 0) return false;
    }
    return true;
  }

  bool place(std::int64_t alignment) {
    offsets_.clear();
    std::int64_t at = 0;
    for (const LayoutEntry& e : entries_) {
      const std::int64_t next_shard = (at / shard_numel_ + 1) * shard_numel_;
      while (at < next_shard && !fits(e, at)) at += alignment;
      if (!fits(e, at)) return false;
      offsets_.push_back(at);
      at = round_up(at + e.numel, alignment);
    }
    return at <= total_numel();
  }

  std::vector<LayoutEntry> entries_;
  std::vector<std::int64_t> offsets_;
  std::int64_t shard_numel_ = 0;
  int shards_;
};

}  // namespace engine::parallel

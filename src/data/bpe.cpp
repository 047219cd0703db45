#include "src/data/bpe.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

namespace engine::data::detail {
namespace {

constexpr std::size_t kShort = 32;  // up to here a scan for the lowest rank beats a heap

std::uint64_t pair_of(std::int32_t left, std::int32_t right) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

std::uint64_t mix(std::uint64_t pair) noexcept {
  pair *= 0x9e3779b97f4a7c15ULL;
  return pair ^ (pair >> 32);
}

}  // namespace

BpeMerges::BpeMerges(std::span<const Merge> merges)
    : table_(std::bit_ceil(2 * merges.size() + 2), Rule{0, kNone, 0}), mask_(table_.size() - 1) {
  std::int32_t rank = 0;
  for (const Merge& merge : merges) {
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    std::uint64_t slot = mix(pair) & mask_;
    while (table_[slot].rank != kNone) slot = (slot + 1) & mask_;
    table_[slot] = {pair, rank++, merge.result};
  }
}

const BpeMerges::Rule& BpeMerges::find(std::int32_t left, std::int32_t right) const noexcept {
  const std::uint64_t pair = pair_of(left, right);
  std::uint64_t slot = mix(pair) & mask_;
  while (table_[slot].rank != kNone && table_[slot].pair != pair) slot = (slot + 1) & mask_;
  return table_[slot];
}

void BpeMerges::apply(std::vector<std::int32_t>& ids) const {
  if (ids.size() < 2) return;
  if (ids.size() <= kShort) {
    apply_short(ids);
  } else {
    apply_long(ids);
  }
}

void BpeMerges::apply_short(std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kShort> ranks = {};
  std::size_t count = ids.size();
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = find(ids[i], ids[i + 1]).rank;
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNone) break;
    ids[best] = find(ids[best], ids[best + 1]).result;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i - 1] = ranks[i];
    }
    if (best > 0) ranks[best - 1] = find(ids[best - 1], ids[best]).rank;
    if (best + 1 < count) ranks[best] = find(ids[best], ids[best + 1]).rank;
  }
  ids.resize(count);
}

void BpeMerges::apply_long(std::vector<std::int32_t>& ids) const {
  struct Link {
    std::size_t previous;
    std::size_t next;
  };
  using Candidate = std::pair<std::int32_t, std::size_t>;  // rank, position of the left symbol
  const std::size_t count = ids.size();
  constexpr std::int32_t kGone = -1;
  std::vector<Link> links(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::size_t left) {
    const std::size_t right = links[left].next;
    if (right == count) return;
    const Rule& rule = find(ids[left], ids[right]);
    if (rule.rank != kNone) queue.emplace(rule.rank, left);
  };
  for (std::size_t i = 0; i < count; ++i) links[i] = {i - 1, i + 1};
  for (std::size_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const auto [rank, left] = queue.top();
    queue.pop();
    const std::size_t right = links[left].next;
    if (ids[left] == kGone || right == count) continue;
    const Rule& rule = find(ids[left], ids[right]);
    if (rule.rank != rank) continue;  // one of the two was merged with another since
    ids[left] = rule.result;
    ids[right] = kGone;
    links[left].next = links[right].next;
    if (links[left].next != count) links[links[left].next].previous = left;
    consider(left);
    if (left != 0) consider(links[left].previous);
  }
  std::erase(ids, kGone);
}

}  // namespace engine::data::detail

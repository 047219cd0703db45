#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace engine::data::detail {

/// A merge rule: the pair (left, right) becomes `result`. Its rank is its place in the list.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

/// Byte-pair merging: as long as a rule applies, the adjacent pair of lowest rank is merged, the
/// leftmost first.
/// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016.
class BpeMerges {
 public:
  /// Pairs must be distinct and ids not negative.
  explicit BpeMerges(std::span<const Merge> merges);

  /// Merges `ids` in place; n log n in their number.
  void apply(std::vector<std::int32_t>& ids) const;

 private:
  struct Rule {
    std::uint64_t pair;
    std::int32_t rank;
    std::int32_t result;
  };
  static constexpr std::int32_t kNone = INT32_MAX;

  const Rule& find(std::int32_t left, std::int32_t right) const noexcept;
  void apply_short(std::vector<std::int32_t>& ids) const;
  void apply_long(std::vector<std::int32_t>& ids) const;

  std::vector<Rule> table_;  // open addressing; free slots have rank kNone
  std::uint64_t mask_;
};

}  // namespace engine::data::detail

#pragma once
// Rows that hold every pair of values of any two factors at least once.
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace engine::test {

/// Indices into each factor's values. Greedy: walks all rows that `valid` admits and takes, again
/// and again, the one that covers most pairs that are still missing. Deterministic.
inline std::vector<std::vector<int>> covering_array(
    const std::vector<int>& sizes, const std::function<bool(const std::vector<int>&)>& valid) {
  std::vector<std::vector<int>> all;
  std::vector<int> row(sizes.size(), 0);
  for (bool more = true; more;) {
    if (valid(row)) all.push_back(row);
    more = false;
    for (std::size_t f = 0; f < sizes.size() && !more; ++f) {
      more = ++row[f] < sizes[f];
      if (!more) row[f] = 0;
    }
  }
  using Pair = std::tuple<std::size_t, int, std::size_t, int>;
  const auto pairs_of = [](const std::vector<int>& r) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < r.size(); ++a) {
      for (std::size_t b = a + 1; b < r.size(); ++b) pairs.emplace_back(a, r[a], b, r[b]);
    }
    return pairs;
  };
  std::set<Pair> missing;
  for (const auto& r : all) {
    for (const Pair& p : pairs_of(r)) missing.insert(p);
  }
  std::vector<std::vector<int>> chosen;
  while (!missing.empty()) {
    std::size_t best = 0;
    std::size_t most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::size_t count = 0;
      for (const Pair& p : pairs_of(all[i])) count += missing.count(p);
      if (count > most) most = count, best = i;
    }
    chosen.push_back(all[best]);
    for (const Pair& p : pairs_of(all[best])) missing.erase(p);
  }
  return chosen;
}

}  // namespace engine::test

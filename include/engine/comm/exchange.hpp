#pragma once
// Small values between the members of a group.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/comm/communicator.hpp"

namespace engine::comm {

/// Every member's `value`, in rank order; the same on all. Collective; blocks.
template <class T>
std::vector<T> exchange(Communicator& comm, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(comm.size()));
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  T own = value;
  comm.all_gather(Tensor::borrow(&own, {kBytes}, DType::u8),
                  Tensor::borrow(all.data(), {kBytes * comm.size()}, DType::u8))
      .wait();
  return all;
}

/// Sum of every member's `value`, added in rank order. Collective; blocks.
template <class T>
T exchange_sum(Communicator& comm, const T& value) {
  T sum{};
  for (const T& v : exchange(comm, value)) sum += v;
  return sum;
}

/// Every member's list, in rank order. Collective; blocks.
template <class T>
std::vector<std::vector<T>> exchange_lists(Communicator& comm, const std::vector<T>& list) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto counts = exchange(comm, list.size());
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  const auto bytes = static_cast<std::int64_t>(most * sizeof(T));
  std::vector<std::byte> own(most * sizeof(T));
  std::vector<std::byte> all(own.size() * static_cast<std::size_t>(comm.size()));
  if (!list.empty()) std::memcpy(own.data(), list.data(), list.size() * sizeof(T));
  comm.all_gather(Tensor::borrow(own.data(), {bytes}, DType::u8),
                  Tensor::borrow(all.data(), {bytes * comm.size()}, DType::u8))
      .wait();
  std::vector<std::vector<T>> lists;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    lists.emplace_back(counts[r]);
    if (counts[r] > 0) {
      std::memcpy(lists[r].data(), all.data() + r * own.size(), counts[r] * sizeof(T));
    }
  }
  return lists;
}

/// The text of rank 0 on all members. Collective; blocks.
inline std::string share_text(Communicator& comm, const std::string& text) {
  const bool speaks = comm.rank() == 0;
  const std::vector<char> own(text.begin(), speaks ? text.end() : text.begin());
  const std::vector<char> first = exchange_lists(comm, own).front();
  return {first.begin(), first.end()};
}

}  // namespace engine::comm

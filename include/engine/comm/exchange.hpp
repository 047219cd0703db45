#pragma once
// Small values between the members of a group.
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

}  // namespace engine::comm

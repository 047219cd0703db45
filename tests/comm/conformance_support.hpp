#pragma once
// What the conformance suites share: tensors with known values, and reductions done the slow way.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/comm/world.hpp"
#include "engine/core/error.hpp"

namespace engine::comm::test {

/// Numbers of elements to try.
inline std::array<std::int64_t, 5> sizes(const World& world) {
  return {0, 1, 7, 1000, world.size() <= 3 ? 65537 : 9973};
}
inline constexpr std::array<ReduceOp, 3> kReduceOps = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};

/// Limits of tests that do not expect to reach them.
inline Timeouts patient() { return {.collective_s = 60, .startup_s = 60}; }

inline std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The group of all ranks.
inline std::unique_ptr<Communicator> everyone(World& world, Lane& lane,
                                              const std::string& name = "everyone") {
  return world.group(name, all_ranks(world), lane);
}

template <class T>
Tensor empty(std::int64_t n) {
  auto memory = std::make_shared<std::vector<T>>(static_cast<std::size_t>(n));
  void* const data = memory->data();
  return Tensor::share(std::move(memory), data, {n}, dtype_of<T>);
}

/// Element `i` of what rank `rank` puts into a collective: of mixed size and sign, so that the
/// order of a sum shows in its last bits.
template <class T>
T value(int rank, std::int64_t i, int salt = 0) {
  auto x = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL +
           (static_cast<std::uint64_t>(rank) + 17 * static_cast<std::uint64_t>(salt) + 1) *
               0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 30)) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x % 250) - (std::is_signed_v<T> ? T{125} : T{0});
  } else {
    const float fraction = static_cast<float>(x >> 40) * 0x1p-23F - 1.0F;
    return static_cast<T>(std::ldexp(fraction, static_cast<int>(x % 12) - 6));
  }
}

template <class T>
Tensor values(int rank, std::int64_t n, int salt = 0) {
  Tensor t = empty<T>(n);
  for (std::int64_t i = 0; i < n; ++i) t.data<T>()[i] = value<T>(rank, i, salt);
  return t;
}

/// The reduction of element `i` over `ranks` ranks, in rank order, rounded once.
template <class T>
T reduced(int ranks, std::int64_t i, ReduceOp op, int salt = 0) {
  using Wide = std::conditional_t<std::is_integral_v<T>, T, float>;
  auto result = static_cast<Wide>(value<T>(0, i, salt));
  for (int r = 1; r < ranks; ++r) {
    const auto next = static_cast<Wide>(value<T>(r, i, salt));
    if (op == ReduceOp::sum) result = static_cast<Wide>(result + next);
    if (op == ReduceOp::max) result = next > result ? next : result;
    if (op == ReduceOp::min) result = next < result ? next : result;
  }
  return static_cast<T>(result);
}

/// Elements of `t` whose bits differ from `expected(i)`.
template <class T, class Expected>
std::int64_t wrong(const Tensor& t, const Expected& expected) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    const T want = expected(i);
    count += std::memcmp(&t.data<T>()[i], &want, sizeof(T)) != 0;
  }
  return count;
}

/// Calls `f.operator()<T>()` for every type that can be reduced.
template <class F>
void for_reducible_types(const F& f) {
  f.template operator()<float>();
  f.template operator()<bf16>();
  f.template operator()<f16>();
  f.template operator()<std::int32_t>();
  f.template operator()<std::int64_t>();
}

/// And for those that can only be moved.
template <class F>
void for_all_types(const F& f) {
  for_reducible_types(f);
  f.template operator()<std::uint16_t>();
  f.template operator()<std::uint8_t>();
}

/// Runs `action`, which must throw an Error with `code` whose message holds all of `parts`.
template <class F>
void expect_error(Errc code, const std::vector<std::string>& parts, const F& action) {
  try {
    action();
    ADD_FAILURE() << "expected an error with code " << name(code);
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    }
  }
}

}  // namespace engine::comm::test

// The arithmetic of reductions, and its branchless conversions.
#include "src/comm/reduce.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "src/comm/narrow.hpp"

namespace engine::comm::detail {
namespace {

template <class T>
void expect_conversions_of_dtype() {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    T x;
    x.bits = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widen(x)),
              std::bit_cast<std::uint32_t>(static_cast<float>(x)))
        << bits;
  }
  for (std::uint64_t bits = 0; bits < 0x100000000U; bits += 1021) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(narrow<T>(x), static_cast<T>(x).bits) << bits;
  }
}

TEST(Reduce, ConversionsAreThoseOfTheTypes) {
  expect_conversions_of_dtype<bf16>();
  expect_conversions_of_dtype<f16>();
}

template <class T>
std::vector<T> reduce_all(ReduceOp op, const std::vector<std::vector<T>>& values) {
  std::vector<T> result(values[0].size());
  std::vector<const std::byte*> inputs;
  for (const std::vector<T>& v : values) {
    inputs.push_back(reinterpret_cast<const std::byte*>(v.data()));
  }
  auto* const output = reinterpret_cast<std::byte*>(result.data());
  reduce(dtype_of<T>, op, inputs, {&output, 1}, static_cast<std::int64_t>(result.size()));
  return result;
}

TEST(Reduce, IntegersWrapAround) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduce_all<std::int32_t>(ReduceOp::sum, {{kMax, 1}, {1, 2}, {1, 3}}),
            (std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min() + 1, 6}));
  EXPECT_EQ(reduce_all<std::int64_t>(ReduceOp::max, {{-5, 1}, {-6, 2}}),
            (std::vector<std::int64_t>{-5, 2}));
}

TEST(Reduce, NotANumberWinsMaximumAndMinimum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum}) {
    const std::vector<float> result =
        reduce_all<float>(op, {{nan, 1, 1, 1}, {1, nan, 1, 1}, {1, 1, nan, 1}});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(result[static_cast<std::size_t>(i)]));
    EXPECT_FALSE(std::isnan(result[3]));
  }
}

TEST(Reduce, NarrowFloatsAreRoundedOnce) {
  const bf16 one(1.0F);
  const bf16 half_step(0x1p-8F);  // half of what separates 1 from the next bf16
  EXPECT_EQ(
      static_cast<float>(reduce_all<bf16>(ReduceOp::sum, {{one}, {half_step}, {half_step}})[0]),
      1.0F + 0x1p-7F);
}

TEST(Reduce, WholeBlocksAndTails) {
  for (const std::size_t n : {1U, 2047U, 2048U, 2049U, 5000U}) {
    std::vector<float> a(n);
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<float>(i);
    const std::vector<float> sum = reduce_all<float>(ReduceOp::sum, {a, a, a});
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], 3 * a[i]) << i;
  }
}

}  // namespace
}  // namespace engine::comm::detail

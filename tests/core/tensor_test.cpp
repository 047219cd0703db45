#include "engine/core/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace engine {
namespace {

TEST(Tensor, StorageReturnsToTheArenaWithTheLastHandle) {
  Arena arena(std::size_t{64} << 20);
  Tensor a = Tensor::allocate(arena, {3, 5}, DType::f32, Category::activations);
  a.data<float>()[5] = 7;
  Tensor row = a.slice(0, 1, 2);
  a = {};
  EXPECT_GT(arena.meter().stats().total.now_bytes, 0);
  EXPECT_EQ(row.data<float>()[0], 7);
  row = {};
  EXPECT_EQ(arena.meter().stats().total.now_bytes, 0);
}

TEST(Tensor, SlicesAndUnflattenKeepStrides) {
  std::vector<float> data(2 * 3 * 8);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const Tensor t = Tensor::borrow(data.data(), {2, 3, 8}, DType::f32);
  const Tensor part = t.slice(-1, 4, 8).unflatten(-1, 2);
  EXPECT_EQ(part.shape(), (Shape{2, 3, 2, 2}));
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(part.stride(1), 8);
  EXPECT_EQ(part.stride(2), 2);
  EXPECT_EQ(part.data<float>()[part.stride(0) + 2 * part.stride(1) + part.stride(2) + 1],
            24 + 16 + 4 + 3);
}

TEST(Tensor, MisuseIsNamed) {
  MemoryMeter meter;
  const Tensor t = Tensor::meta({2, 2}, DType::bf16, Category::activations, meter);
  EXPECT_EQ(meter.stats().total.now_bytes, 8);
  EXPECT_THROW(t.data<bf16>(), Error);
  EXPECT_THROW(t.data<float>(), Error);
  EXPECT_THROW(t.view({5}), Error);
  EXPECT_THROW(t.slice(0, 1, 3), Error);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(bf16(1.0F)), 1.0F);
  EXPECT_EQ(bf16(1.0F + 0x1p-8F).bits, bf16(1.0F).bits);          // tie to even
  EXPECT_EQ(bf16(1.0F + 3 * 0x1p-8F).bits, bf16(1.0F).bits + 2);  // tie to even
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DType, F16MatchesTheCompilersHalf) {
  for (std::uint32_t u = 0; u < 0xffffff00U; u += 9973) {
    const auto value = std::bit_cast<float>(u);
    const auto expected = static_cast<_Float16>(value);
    std::uint16_t bits = 0;
    std::memcpy(&bits, &expected, 2);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(f16(value))));
    } else {
      ASSERT_EQ(f16(value).bits, bits) << value;
      ASSERT_EQ(static_cast<float>(f16(value)), static_cast<float>(expected));
    }
  }
}

}  // namespace
}  // namespace engine

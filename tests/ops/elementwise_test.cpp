#include "engine/ops/elementwise.hpp"

#include "engine/ops/peak.hpp"
#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

ENGINE_OP_TEST(ElementwiseTest);

TEST_P(ElementwiseTest, AddMatchesTheReferenceInPlaceToo) {
  for (const std::int64_t n : {1, 3, 17, 130, 40000}) {
    for (const DType b_type : {dtype(), DType::bf16}) {
      const Tensor a = rand({n}, 1);
      const Tensor b = random(device(), {n}, b_type, 2);
      Values expected = values(a);
      const Values vb = values(b);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += vb[i];
      const Tensor y = nans({n});
      add(device(), a, b, y);
      expect_close(y, expected, bound(1e-7));
      add(device(), a, b, a);
      expect_same_bits(a, y);
    }
  }
}

TEST_P(ElementwiseTest, CopyConvertsAndTakesStrides) {
  const Tensor wide = rand({5, 33, 20}, 1);
  for (const DType to : {DType::f32, DType::bf16}) {
    const Tensor x = wide.slice(2, 3, 16).slice(1, 2, 33);
    const Tensor y = poisoned(device(), {5, 31, 13}, to);
    copy(device(), x, y);
    Values expected = values(x);
    for (double& v : expected) {
      if (to == DType::bf16)
        v = static_cast<double>(static_cast<float>(bf16(static_cast<float>(v))));
    }
    EXPECT_EQ(values(y), expected);
    const Tensor back = poisoned(device(), {5, 31, 20}, dtype());
    copy(device(), y, back.slice(2, 4, 17));
    EXPECT_EQ(values(back.slice(2, 4, 17)), expected);
    EXPECT_TRUE(std::isnan(values(back)[3]) && std::isnan(values(back)[17]));
  }
  const Tensor ids = tokens(device(), {3, 40000}, 1000, 2);
  const Tensor same = empty(device(), {3, 40000}, DType::i32);
  copy(device(), ids, same);
  expect_same_bits(ids, same);
}

TEST_P(ElementwiseTest, CopyRoundsToNearestEvenAndKeepsNonFiniteValues) {
  const Tensor x = nans_f32({5});
  assign(x, {1 + 0x1p-8, 1 + 0x3p-8, std::nan(""), -INFINITY, 3.4028234e38});
  const Tensor y = poisoned(device(), {5}, DType::bf16);
  copy(device(), x, y);
  const Values v = values(y);
  EXPECT_EQ(v[0], 1);
  EXPECT_EQ(v[1], 1 + 0x1p-6);
  EXPECT_TRUE(std::isnan(v[2]));
  EXPECT_EQ(v[3], -INFINITY);
  EXPECT_EQ(v[4], INFINITY);
}

TEST_P(ElementwiseTest, Fill) {
  const Tensor x = nans({3, 20001});
  fill(device(), x, -1.5F);
  EXPECT_EQ(values(x), Values(3 * 20001, -1.5));
}

TEST_P(ElementwiseTest, DropoutIsTheMaskOfPhiloxForAnyCutOfTheBatch) {
  const ops::Dropout settings{.rate = 0.3F, .key = philox::key(1, "d"), .first_sample = 5};
  const double rate = static_cast<double>(settings.rate);
  for (const Shape& shape : {Shape{3, 1}, Shape{2, 7}, Shape{3, 5, 1001}, Shape{2, 17000}}) {
    const Tensor x = rand(shape, 1);
    const Tensor y = nans(shape);
    dropout(device(), x, settings, y);
    const Values in = values(x);
    const Values out = values(y);
    const std::size_t per_sample = in.size() / at(shape[0]);
    const auto keep = static_cast<float>(1 / (1 - rate));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::uint32_t word = philox::word(settings.key, i % per_sample, 5 + i / per_sample);
      float expected = word < rate * 0x1p32 ? 0.0F : static_cast<float>(in[i]) * keep;
      if (dtype() == DType::bf16) expected = static_cast<float>(bf16(expected));
      ASSERT_EQ(out[i], static_cast<double>(expected)) << i;
    }
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      ops::Dropout row = settings;
      row.first_sample += b;
      dropout(device(), x.slice(0, b, b + 1), row, x.slice(0, b, b + 1));
    }
    expect_same_bits(x, y);
  }
  const Tensor x = rand({2, 9}, 3);
  const Tensor y = nans({2, 9});
  dropout(device(), x, {}, y);
  expect_same_bits(x, y);
}

TEST_P(ElementwiseTest, SumRows) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{0, 3}, {1, 1}, {17, 7}, {130, 65}, {3000, 300}}) {
    const Tensor x = rand({rows, columns}, 1);
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      const bool add = write == Write::accumulate;
      const Tensor s = add ? random(device(), {columns}, DType::f32, 2) : nans_f32({columns});
      Values expected = add ? values(s) : Values(at(columns));
      const Values v = values(x);
      for (std::size_t i = 0; i < v.size(); ++i) expected[i % at(columns)] += v[i];
      sum_rows(device(), x, s, write);
      expect_close(s, expected, 1e-6);
    }
  }
}

TEST(Elementwise, SumsAreDouble) {
  for (const bool baseline : {false, true}) {
    const auto device = make_device(2, baseline);
    for (const std::int64_t n : {0, 1, 7, 130, 100003}) {
      const Tensor x = random(*device, {n}, DType::f32, 1);
      double s = 0;
      double squares = 0;
      for (const double v : values(x)) {
        s += v;
        squares += v * v;
      }
      EXPECT_NEAR(sum(*device, x), s, 1e-10);
      EXPECT_NEAR(sum_of_squares(*device, x), squares, 1e-12 * squares);
    }
    const Tensor x = random(*device, {130}, DType::f32, 1);
    x.data<float>()[77] = std::nanf("");
    EXPECT_TRUE(std::isnan(sum(*device, x)));
    EXPECT_TRUE(std::isnan(sum_of_squares(*device, x)));
  }
}

TEST(Elementwise, ThreadsDoNotMatter) {
  expect_threads_do_not_matter([](DeviceContext& device) {
    const Tensor x = random(device, {100, 1001}, DType::f32, 1);
    const Tensor s = empty(device, {1001});
    sum_rows(device, x, s, Write::overwrite);
    const Tensor sums = empty(device, {4});
    const double total[] = {sum(device, x), sum_of_squares(device, x)};
    std::memcpy(sums.raw(), total, sizeof total);
    dropout(device, x, {.rate = 0.5F, .key = 3, .first_sample = 0}, x);
    return std::vector{x, s, sums};
  });
}

TEST(Elementwise, MetaPassesThroughAfterTheChecks) {
  const auto meta = make_meta_device();
  const Tensor x = empty(*meta, {2, 3});
  const Tensor s = empty(*meta, {3});
  add(*meta, x, x, x);
  copy(*meta, x, x);
  fill(*meta, x, 1);
  dropout(*meta, x, {.rate = 0.5F}, x);
  sum_rows(*meta, x, s, Write::overwrite);
  EXPECT_EQ(sum(*meta, x), 0);
  EXPECT_EQ(sum_of_squares(*meta, x), 0);
  EXPECT_EQ(measure_peak_gflops(*meta), 0);
  EXPECT_THROW(add(*meta, x, s, x), Error);
  EXPECT_THROW(copy(*meta, s, x), Error);
  EXPECT_THROW(sum_rows(*meta, x, x, Write::overwrite), Error);
  try {
    fill(*meta, empty(*meta, {1}, DType::i32), 1);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fill: x: expected type f32 or bf16, got i32"),
              std::string::npos)
        << error.what();
  }
}

TEST(Device, ContextsOfCpuAndMetaButNotCuda) {
  DeviceContext::Options options;
  options.threads = 1;
  const auto cpu = make_device_context(options);
  EXPECT_EQ(cpu->kernels(), &cpu_table());
  EXPECT_GT(measure_peak_gflops(*cpu), 0.1);
  options.device = {DeviceType::cuda, 0};
  try {
    make_device_context(options);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("this build has no CUDA backend"), std::string::npos);
  }
}

}  // namespace
}  // namespace engine::ops::test

#include "engine/ops/matmul.hpp"

#include "ops/cpu/gemm.hpp"
#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};

ENGINE_OP_TEST(MatmulTest);

Values reference(const Values& a, Trans trans_a, const Values& b, Trans trans_b, Sizes s) {
  Values c(at(s.m * s.n), 0.0);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t p = 0; p < s.k; ++p) {
      const double x = a[at(trans_a == Trans::yes ? p * s.m + i : i * s.k + p)];
      for (std::int64_t j = 0; j < s.n; ++j) {
        c[at(i * s.n + j)] += x * b[at(trans_b == Trans::yes ? j * s.k + p : p * s.n + j)];
      }
    }
  }
  return c;
}

Shape stored(std::int64_t rows, std::int64_t columns, Trans trans) {
  return trans == Trans::yes ? Shape{columns, rows} : Shape{rows, columns};
}

constexpr Trans kTrans[] = {Trans::no, Trans::yes};

TEST_P(MatmulTest, MatchesTheReferenceForOddSizesAndAllTransposes) {
  for (const Sizes s : {Sizes{1, 1, 1},
                        {3, 7, 17},
                        {17, 3, 7},
                        {1, 130, 65},
                        {65, 1, 130},
                        {63, 65, 1},
                        {130, 257, 63},
                        {300, 310, 129},
                        {1024, 3, 70},
                        {5, 2048, 9}}) {
    for (const Trans ta : kTrans) {
      for (const Trans tb : kTrans) {
        const Tensor a = rand(stored(s.m, s.k, ta), 1);
        const Tensor b = rand(stored(s.k, s.n, tb), 2);
        const Tensor c = nans({s.m, s.n});
        matmul(device(), a, ta, b, tb, c);
        const Values expected = reference(values(a), ta, values(b), tb, s);
        expect_close(c, expected, bound(2e-6));
      }
    }
  }
}

TEST_P(MatmulTest, AccumulatesAndAddsTheBiasInF32) {
  const Sizes s{70, 130, 65};
  const Tensor a = rand({s.m, s.k}, 1);
  const Tensor b = rand({s.k, s.n}, 2);
  const Values product = reference(values(a), Trans::no, values(b), Trans::no, s);
  for (const DType bias_type : {dtype(), DType::f32}) {
    for (const DType c_type : {dtype(), DType::f32}) {
      const Tensor bias = random(device(), {s.n}, bias_type, 3);
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        const Tensor c = poisoned(device(), {s.m, s.n}, c_type);
        if (write == Write::accumulate) randomize(c, 4);
        Values expected = product;
        const Values before = values(c);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          expected[i] += values(bias)[i % at(s.n)];
          if (write == Write::accumulate) expected[i] += before[i];
        }
        matmul(device(), a, Trans::no, b, Trans::no, c, write, bias);
        expect_close(c, expected, c_type == DType::bf16 ? 0x1p-8 : 2e-6);
      }
    }
  }
}

TEST_P(MatmulTest, RowsMayBeStrided) {
  const Sizes s{37, 41, 29};
  const Tensor a = rand({s.m, s.k + 5}, 1).slice(1, 2, s.k + 2);
  const Tensor b = rand({s.n, s.k + 3}, 2).slice(1, 1, s.k + 1);
  const Tensor wide = rand({s.m, s.n + 4}, 3);
  const Values before = values(wide);
  const Tensor c = wide.slice(1, 1, s.n + 1);
  matmul(device(), a, Trans::no, b, Trans::yes, c);
  const Values expected = reference(values(a), Trans::no, values(b), Trans::yes, s);
  expect_close(c, expected, bound(2e-6));
  for (std::int64_t i = 0; i < s.m; ++i) {  // what lies between the rows stays
    EXPECT_EQ(values(wide)[at(i * (s.n + 4))], before[at(i * (s.n + 4))]);
    EXPECT_EQ(values(wide)[at((i + 1) * (s.n + 4) - 1)], before[at((i + 1) * (s.n + 4) - 1)]);
  }
}

TEST_P(MatmulTest, EmptySizes) {
  const Tensor bias = rand({4}, 5);
  const Tensor c = nans({3, 4});
  matmul(device(), rand({3, 0}, 1), Trans::no, rand({0, 4}, 2), Trans::no, c, Write::overwrite,
         bias);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(values(c)[i], values(bias)[i % 4]);
  const Tensor kept = rand({3, 4}, 6);
  const Values before = values(kept);
  matmul(device(), rand({3, 0}, 1), Trans::no, rand({0, 4}, 2), Trans::no, kept, Write::accumulate);
  EXPECT_EQ(values(kept), before);
  matmul(device(), rand({0, 2}, 1), Trans::no, rand({2, 4}, 2), Trans::no, nans({0, 4}));
  matmul(device(), rand({3, 2}, 1), Trans::no, rand({2, 0}, 2), Trans::no, nans({3, 0}));
}

TEST_P(MatmulTest, NonFiniteValuesPropagate) {
  const Tensor a = rand({3, 5}, 1);
  Values x = values(a);
  x[0] = std::nan("");
  x[7] = INFINITY;
  assign(a, x);
  const Tensor b = rand({5, 2}, 2);
  const Tensor c = nans({3, 2});
  matmul(device(), a, Trans::no, b, Trans::no, c);
  const Values y = values(c);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_TRUE(std::isinf(y[2]) && std::isinf(y[3]));
  EXPECT_TRUE(std::isfinite(y[4]) && std::isfinite(y[5]));
}

TEST(Matmul, ThreadsDoNotMatter) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_threads_do_not_matter([&](DeviceContext& device) {
      const Tensor c = poisoned(device, {257, 391}, dtype);
      matmul(device, random(device, {257, 130}, dtype, 1), Trans::no,
             random(device, {391, 130}, dtype, 2), Trans::yes, c);
      return std::vector{c};
    });
  }
}

TEST(Matmul, GradientsAreMatmulsOfTheOtherOperand) {
  const Sizes s{3, 5, 4};
  const Values a = normals(s.m * s.k, 1);
  const Values b = normals(s.k * s.n, 2);
  const Values dc = normals(s.m * s.n, 3);
  expect_gradient([&](const Values& x) { return reference(x, Trans::no, b, Trans::no, s); }, a, dc,
                  reference(dc, Trans::no, b, Trans::yes, {s.m, s.k, s.n}));
  expect_gradient([&](const Values& x) { return reference(a, Trans::no, x, Trans::no, s); }, b, dc,
                  reference(a, Trans::yes, dc, Trans::no, {s.k, s.n, s.m}));
}

TEST(Matmul, MetaCountsFlopsAndChecksShapes) {
  const auto device = make_meta_device();
  const Tensor a = empty(*device, {3, 5});
  const Tensor b = empty(*device, {5, 7});
  matmul(*device, a, Trans::no, b, Trans::no, empty(*device, {3, 7}));
  EXPECT_EQ(device->counters().matmul_flops, 2 * 3 * 5 * 7);
  EXPECT_THROW(matmul(*device, a, Trans::yes, b, Trans::no, empty(*device, {3, 7})), Error);
  EXPECT_THROW(matmul(*device, a, Trans::no, b, Trans::no, empty(*device, {7, 3})), Error);
  EXPECT_THROW(matmul(*device, a, Trans::no, b, Trans::no, empty(*device, {3, 7}, DType::bf16)),
               Error);
}

// The path of machines with native bf16, exercised with f32 wherever the tests run.
TEST(PrimitiveMatmul, MatchesTheReference) {
  const auto device = make_device(1);
  const Sizes s{33, 47, 29};
  for (const Trans ta : kTrans) {
    for (const Trans tb : kTrans) {
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        const Tensor a = random(*device, stored(s.m, s.k, ta), DType::f32, 1);
        const Tensor b = random(*device, stored(s.k, s.n, tb), DType::f32, 2);
        const Tensor bias = random(*device, {s.n}, DType::f32, 3);
        const Tensor c = poisoned(*device, {s.m, s.n + 3});
        if (write == Write::accumulate) randomize(c, 4);
        const Values before = values(c.slice(1, 0, s.n));
        for (const bool with_bias : {false, true}) {
          const Tensor out = empty(*device, c.shape());
          assign(out, values(c));
          cpu::primitive_matmul(s.m, s.n, s.k, DType::f32, {a.raw(), a.stride(0), ta},
                                {b.raw(), b.stride(0), tb}, DType::f32, out.raw(), out.stride(0),
                                write, {with_bias ? bias.raw() : nullptr, DType::f32});
          Values expected = reference(values(a), ta, values(b), tb, s);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            if (with_bias) expected[i] += values(bias)[i % at(s.n)];
            if (write == Write::accumulate) expected[i] += before[i];
          }
          expect_close(out.slice(1, 0, s.n), expected, 2e-6);
        }
      }
    }
  }
}

TEST(TileMatmul, CoversTheShapeInFewTiles) {
  for (const Sizes s : {Sizes{1, 1, 1},
                        {1, 2304, 768},
                        {1024, 2304, 768},
                        {1024, 50257, 768},
                        {50257, 768, 1024},
                        {768, 3072, 8192},
                        {7, 100000, 3},
                        {100000, 7, 3}}) {
    const cpu::Tiling t = cpu::tile_matmul(s.m, s.n, s.k);
    EXPECT_LE(t.tiles_m * t.tiles_n, 48);
    EXPECT_GE(t.tiles_m * t.rows, s.m);
    EXPECT_LT((t.tiles_m - 1) * t.rows, s.m);
    EXPECT_GE(t.tiles_n * t.columns, s.n);
    EXPECT_LT((t.tiles_n - 1) * t.columns, s.n);
  }
}

}  // namespace
}  // namespace engine::ops::test

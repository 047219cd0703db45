#include "engine/ops/attention.hpp"

#include <algorithm>

#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

struct Sizes {
  std::int64_t batch, queries, keys, heads, kv_heads, depth;

  std::int64_t q_numel() const { return batch * queries * heads * depth; }
  std::int64_t kv_numel() const { return batch * keys * kv_heads * depth; }
  Shape q() const { return {batch, queries, heads, depth}; }
  Shape kv() const { return {batch, keys, kv_heads, depth}; }
  Shape lse() const { return {batch, heads, queries}; }
};

struct Result {
  Values out, lse, dq, dk, dv;
};

double keep_factor(const Dropout& dropout, std::int64_t sample, std::int64_t element) {
  if (!dropout.active()) return 1;
  const std::uint32_t word =
      philox::word(dropout.key, static_cast<std::uint64_t>(element),
                   static_cast<std::uint64_t>(dropout.first_sample + sample));
  const double rate = static_cast<double>(dropout.rate);
  return word < rate * 0x1p32 ? 0 : 1 / (1 - rate);
}

Result reference(const Values& q, const Values& k, const Values& v, double scale,
                 const Dropout& dropout, const Sizes& s, const Values& dout = {}) {
  Result r{Values(q.size()), Values(at(s.batch * s.heads * s.queries)), Values(q.size()),
           Values(k.size()), Values(k.size())};
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t t = 0; t < s.queries; ++t) {
        const std::int64_t qi = ((b * s.queries + t) * s.heads + h) * s.depth;
        const std::int64_t group = h / (s.heads / s.kv_heads);
        const auto ki = [&](std::int64_t j) {
          return ((b * s.keys + j) * s.kv_heads + group) * s.depth;
        };
        const std::int64_t visible = t + 1 + s.keys - s.queries;
        Values p(at(visible));
        for (std::int64_t j = 0; j < visible; ++j) {
          for (std::int64_t d = 0; d < s.depth; ++d) {
            p[at(j)] += scale * q[at(qi + d)] * k[at(ki(j) + d)];
          }
        }
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - top);
        r.lse[at((b * s.heads + h) * s.queries + t)] = top + std::log(sum);
        double delta = 0;
        Values dp(at(visible));
        for (std::int64_t j = 0; j < visible; ++j) {
          p[at(j)] /= sum;
          const double keep = keep_factor(dropout, b, (h * s.queries + t) * s.keys + j);
          for (std::int64_t d = 0; d < s.depth; ++d) {
            r.out[at(qi + d)] += p[at(j)] * keep * v[at(ki(j) + d)];
            if (dout.empty()) continue;
            r.dv[at(ki(j) + d)] += p[at(j)] * keep * dout[at(qi + d)];
            dp[at(j)] += keep * dout[at(qi + d)] * v[at(ki(j) + d)];
          }
          delta += p[at(j)] * dp[at(j)];
        }
        if (dout.empty()) continue;
        for (std::int64_t j = 0; j < visible; ++j) {
          const double ds = scale * p[at(j)] * (dp[at(j)] - delta);
          for (std::int64_t d = 0; d < s.depth; ++d) {
            r.dq[at(qi + d)] += ds * k[at(ki(j) + d)];
            r.dk[at(ki(j) + d)] += ds * q[at(qi + d)];
          }
        }
      }
    }
  }
  return r;
}

constexpr double kScale = 0.3;
Dropout some_dropout() { return {.rate = 0.2F, .key = philox::key(7, "a"), .first_sample = 11}; }

ENGINE_OP_TEST(AttentionTest);

TEST_P(AttentionTest, ForwardAndBackwardMatchTheReference) {
  for (const Dropout& dropout : {Dropout{}, some_dropout()}) {
    for (const Sizes s : {Sizes{1, 1, 1, 1, 1, 1},
                          {2, 3, 3, 2, 2, 7},
                          {1, 17, 17, 3, 1, 8},
                          {2, 65, 65, 4, 2, 16},
                          {1, 130, 130, 2, 1, 17},
                          {1, 200, 200, 1, 1, 64}}) {
      const Tensor q = rand(s.q(), 1);
      const Tensor k = rand(s.kv(), 2);
      const Tensor v = rand(s.kv(), 3);
      const Tensor dout = rand(s.q(), 4);
      const Tensor out = nans(s.q());
      const Tensor lse = nans_f32(s.lse());
      attention(device(), q, k, v, kScale, dropout, out, lse);
      const Result expected =
          reference(values(q), values(k), values(v), kScale, dropout, s, values(dout));
      expect_close(out, expected.out, bound(3e-6), "out");
      expect_close(lse, expected.lse, 1e-6, "lse");
      const Tensor dq = nans(s.q());
      const Tensor dk = nans(s.kv());
      const Tensor dv = nans(s.kv());
      attention_backward(device(), dout, q, k, v, out, lse, kScale, dropout, dq, dk, dv);
      // In bf16 the backward pass reads a rounded `out`, also where the exact gradient vanishes.
      const bool is_short = dtype() == DType::bf16;
      const double b = is_short ? 0x1p-5 : 1e-5;
      const double floor = is_short ? 0.05 : 0;
      expect_close(dq, expected.dq, b, "dq", floor);
      expect_close(dk, expected.dk, b, "dk", floor);
      expect_close(dv, expected.dv, b, "dv", floor);
    }
  }
}

TEST_P(AttentionTest, QueriesMayBeTheLastPositions) {
  for (const Sizes s : {Sizes{2, 1, 9, 2, 1, 8},
                        {1, 1, 300, 4, 2, 16},
                        {1, 5, 131, 2, 2, 7},
                        {1, 70, 140, 2, 1, 8}}) {
    const Tensor q = rand(s.q(), 1);
    const Tensor k = rand(s.kv(), 2);
    const Tensor v = rand(s.kv(), 3);
    const Tensor out = nans(s.q());
    const Tensor lse = nans_f32(s.lse());
    attention(device(), q, k, v, kScale, some_dropout(), out, lse);
    const Result expected = reference(values(q), values(k), values(v), kScale, some_dropout(), s);
    expect_close(out, expected.out, bound(3e-6));
    expect_close(lse, expected.lse, 1e-6);
  }
}

TEST_P(AttentionTest, ViewsOfFusedTensorsGiveTheSameBits) {
  const Sizes s{2, 70, 70, 4, 2, 8};
  const std::int64_t wide = s.heads * s.depth;
  const std::int64_t narrow = s.kv_heads * s.depth;
  const Tensor fused = rand({s.batch, s.queries, wide + 2 * narrow}, 1);
  const Tensor dfused = nans(fused.shape());
  const auto views = [&](const Tensor& x) {
    return std::array{x.slice(2, 0, wide).unflatten(2, s.depth),
                      x.slice(2, wide, wide + narrow).unflatten(2, s.depth),
                      x.slice(2, wide + narrow, wide + 2 * narrow).unflatten(2, s.depth)};
  };
  const auto [q, k, v] = views(fused);
  const auto [dq, dk, dv] = views(dfused);
  const auto packed = [&](const Tensor& x) {
    const Tensor y = empty(device(), x.shape(), x.dtype());
    assign(y, values(x));
    return y;
  };
  const Tensor dout = rand(s.q(), 4);
  const std::array<Tensor, 2> out = {nans(s.q()), nans(s.q())};
  const std::array<Tensor, 2> lse = {nans_f32(s.lse()), nans_f32(s.lse())};
  attention(device(), q, k, v, kScale, {}, out[0], lse[0]);
  attention(device(), packed(q), packed(k), packed(v), kScale, {}, out[1], lse[1]);
  expect_same_bits(out[0], out[1]);
  expect_same_bits(lse[0], lse[1]);
  const Tensor dq2 = nans(s.q());
  const Tensor dk2 = nans(s.kv());
  const Tensor dv2 = nans(s.kv());
  attention_backward(device(), dout, q, k, v, out[0], lse[0], kScale, {}, dq, dk, dv);
  attention_backward(device(), dout, packed(q), packed(k), packed(v), out[0], lse[0], kScale, {},
                     dq2, dk2, dv2);
  expect_same_bits(dq, dq2);
  expect_same_bits(dk, dk2);
  expect_same_bits(dv, dv2);
}

TEST_P(AttentionTest, TheCutOfTheBatchDoesNotMatter) {
  const Sizes s{3, 67, 67, 2, 2, 8};
  const Tensor q = rand(s.q(), 1);
  const Tensor k = rand(s.kv(), 2);
  const Tensor v = rand(s.kv(), 3);
  const Tensor dout = rand(s.q(), 4);
  const auto run = [&](std::int64_t cut) {
    std::vector<Tensor> r = {nans(s.q()), nans_f32(s.lse()), nans(s.q()), nans(s.kv()),
                             nans(s.kv())};
    for (std::int64_t b = 0; b < s.batch; b += cut) {
      const std::int64_t end = std::min(s.batch, b + cut);
      const auto part = [&](const Tensor& x) { return x.slice(0, b, end); };
      Dropout dropout = some_dropout();
      dropout.first_sample += b;
      attention(device(), part(q), part(k), part(v), kScale, dropout, part(r[0]), part(r[1]));
      attention_backward(device(), part(dout), part(q), part(k), part(v), part(r[0]), part(r[1]),
                         kScale, dropout, part(r[2]), part(r[3]), part(r[4]));
    }
    return r;
  };
  const std::vector<Tensor> whole = run(3);
  const std::vector<Tensor> rows = run(1);
  for (std::size_t i = 0; i < whole.size(); ++i) expect_same_bits(whole[i], rows[i]);
}

TEST(Attention, ReferenceGradientsMatchFiniteDifferences) {
  const Sizes s{1, 4, 4, 2, 1, 3};
  const Values q = normals(s.q_numel(), 1);
  const Values k = normals(s.kv_numel(), 2);
  const Values v = normals(s.kv_numel(), 3);
  const Values dout = normals(s.q_numel(), 4);
  for (const Dropout& dropout : {Dropout{}, some_dropout()}) {
    const Result r = reference(q, k, v, kScale, dropout, s, dout);
    const auto out = [&](const Values& x, const Values& y, const Values& z) {
      return reference(x, y, z, kScale, dropout, s).out;
    };
    expect_gradient([&](const Values& x) { return out(x, k, v); }, q, dout, r.dq);
    expect_gradient([&](const Values& x) { return out(q, x, v); }, k, dout, r.dk);
    expect_gradient([&](const Values& x) { return out(q, k, x); }, v, dout, r.dv);
  }
}

TEST(Attention, ThreadsDoNotMatter) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_threads_do_not_matter([&](DeviceContext& device) {
      const Sizes s{2, 150, 150, 4, 2, 16};
      const auto rand = [&](const Shape& shape, std::uint64_t seed) {
        return random(device, shape, dtype, seed);
      };
      const Tensor q = rand(s.q(), 1);
      const Tensor k = rand(s.kv(), 2);
      const Tensor v = rand(s.kv(), 3);
      const Tensor dout = rand(s.q(), 4);
      const Tensor out = empty(device, s.q(), dtype);
      const Tensor lse = empty(device, s.lse());
      attention(device, q, k, v, kScale, some_dropout(), out, lse);
      const Tensor dq = empty(device, s.q(), dtype);
      const Tensor dk = empty(device, s.kv(), dtype);
      const Tensor dv = empty(device, s.kv(), dtype);
      attention_backward(device, dout, q, k, v, out, lse, kScale, some_dropout(), dq, dk, dv);
      return std::vector{out, lse, dq, dk, dv};
    });
  }
}

TEST(Attention, MetaCountsFlopsOfVisiblePairs) {
  const auto device = make_meta_device();
  const Sizes s{2, 3, 5, 4, 2, 8};
  const Tensor q = empty(*device, s.q());
  const Tensor k = empty(*device, s.kv());
  attention(*device, q, k, k, kScale, {}, q, empty(*device, s.lse()));
  const double pairs = 3 + 4 + 5;
  EXPECT_EQ(device->counters().matmul_flops, 4 * 8 * 4 * 2 * pairs);
  device->counters() = {};
  const Sizes square{2, 3, 3, 4, 2, 8};
  const Tensor k2 = empty(*device, square.kv());
  attention_backward(*device, q, q, k2, k2, q, empty(*device, s.lse()), kScale, {}, q, k2, k2);
  EXPECT_EQ(device->counters().matmul_flops, 10 * 8 * 4 * 2 * 6);
  EXPECT_THROW(
      attention_backward(*device, q, q, k, k, q, empty(*device, s.lse()), kScale, {}, q, k, k),
      Error);
  EXPECT_THROW(attention(*device, q, k, k, kScale, {}, q, empty(*device, {2, 3, 4})), Error);
}

TEST(Attention, NonFiniteValuesPropagate) {
  const auto device = make_device(1);
  const Sizes s{1, 3, 3, 1, 1, 4};
  const Tensor q = random(*device, s.q(), DType::f32, 1);
  q.data<float>()[4] = std::nanf("");
  const Tensor k = random(*device, s.kv(), DType::f32, 2);
  const Tensor out = empty(*device, s.q());
  const Tensor lse = empty(*device, s.lse());
  attention(*device, q, k, k, kScale, {}, out, lse);
  EXPECT_TRUE(std::isfinite(values(out)[0]) && std::isnan(values(out)[4]));
  EXPECT_TRUE(std::isfinite(values(out)[8]) && std::isnan(values(lse)[1]));
}

}  // namespace
}  // namespace engine::ops::test

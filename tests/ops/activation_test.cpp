#include "engine/ops/activation.hpp"

#include <limits>

#include "ops/cpu/isa/math.hpp"
#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

const double kRoot = std::sqrt(2 / std::acos(-1.0));

double tail(double x) {  // 0.5 (1 + tanh(u)) without cancellation
  return 1 / (1 + std::exp(-2 * kRoot * (x + 0.044715 * x * x * x)));
}
double gelu_at(double x) { return x * tail(x); }
double gelu_slope(double x) {
  const double s = tail(x);
  return s + x * s * (1 - s) * 2 * kRoot * (1 + 3 * 0.044715 * x * x);
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

/// From tiny to large, both signs, and a dense middle.
Values interesting() {
  Values x = {0, 1e-30, -1e-30, 1e-7, -1e-7, 1e-3, -1e-3, 20, -20, 60, 100, -100, 1e4};
  for (int i = -800; i <= 800; ++i) x.push_back(i * 0.01);
  return x;
}

/// Relative to the value itself, since both functions must be accurate near zero and in the tail.
void expect_relative(const Tensor& actual, const Values& expected, double bound) {
  const Values a = values(actual);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - expected[i]), bound * std::abs(expected[i]) + 1e-36)
        << "element " << i;
  }
}

ENGINE_OP_TEST(ActivationTest);

TEST_P(ActivationTest, GeluMatchesTheReference) {
  const Values points = interesting();
  const Shape shape{static_cast<std::int64_t>(points.size())};
  const Tensor x = nans(shape);
  assign(x, points);
  const Tensor dy = rand(shape, 1);
  const Tensor y = nans(shape);
  const Tensor dx = nans(shape);
  gelu(device(), x, y);
  gelu_backward(device(), x, dy, dx);
  Values expected_y;
  Values expected_dx;
  const Values vx = values(x);
  const Values vdy = values(dy);
  for (std::size_t i = 0; i < points.size(); ++i) {
    expected_y.push_back(gelu_at(vx[i]));
    expected_dx.push_back(vdy[i] * gelu_slope(vx[i]));
  }
  expect_relative(y, expected_y, dtype() == DType::bf16 ? 0x1p-8 : 6e-6);  // v = -8: x^3 in exp
  expect_close(dx, expected_dx, bound());
  gelu_backward(device(), x, dy, dy);  // in place
  expect_same_bits(dy, dx);
}

TEST_P(ActivationTest, SwigluMatchesTheReference) {
  const Values points = interesting();
  const Shape shape{static_cast<std::int64_t>(points.size())};
  const Tensor gate = nans(shape);
  assign(gate, points);
  const Tensor up = rand(shape, 2);
  const Tensor dy = rand(shape, 3);
  const Tensor y = nans(shape);
  const Tensor dgate = nans(shape);
  const Tensor dup = nans(shape);
  swiglu(device(), gate, up, y);
  swiglu_backward(device(), gate, up, dy, dgate, dup);
  Values ey;
  Values egate;
  Values eup;
  const Values vgate = values(gate);
  const Values vup = values(up);
  const Values vdy = values(dy);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double g = vgate[i];
    ey.push_back(silu(g) * vup[i]);
    egate.push_back(vdy[i] * vup[i] * silu_slope(g));
    eup.push_back(vdy[i] * silu(g));
  }
  expect_relative(y, ey, bound());
  expect_relative(dup, eup, bound());
  expect_close(dgate, egate, bound());
}

TEST_P(ActivationTest, NonFiniteValues) {
  const Tensor x = nans({4});
  assign(x, {std::nan(""), INFINITY, -1e30, 1});
  const Tensor y = nans({4});
  gelu(device(), x, y);
  EXPECT_TRUE(std::isnan(values(y)[0]));
  EXPECT_EQ(values(y)[1], INFINITY);
  EXPECT_EQ(values(y)[2], 0);
  swiglu(device(), x, x, y);
  EXPECT_TRUE(std::isnan(values(y)[0]));
  EXPECT_EQ(values(y)[1], INFINITY);
}

TEST(Activation, ReferenceGradientsMatchFiniteDifferences) {
  const Values x = normals(20, 1);
  const Values up = normals(20, 2);
  const Values dy = normals(20, 3);
  Values dx(20);
  Values dgate(20);
  for (std::size_t i = 0; i < 20; ++i) {
    dx[i] = dy[i] * gelu_slope(x[i]);
    dgate[i] = dy[i] * up[i] * silu_slope(x[i]);
  }
  const auto map = [](const Values& v, const std::function<double(std::size_t)>& f) {
    Values y;
    for (std::size_t i = 0; i < v.size(); ++i) y.push_back(f(i));
    return y;
  };
  expect_gradient([&](const Values& v) { return map(v, [&](auto i) { return gelu_at(v[i]); }); }, x,
                  dy, dx);
  expect_gradient(
      [&](const Values& v) { return map(v, [&](auto i) { return silu(v[i]) * up[i]; }); }, x, dy,
      dgate);
}

TEST(Activation, ThreadsDoNotMatter) {
  expect_threads_do_not_matter([](DeviceContext& device) {
    const Shape shape{3, 20000};
    const Tensor x = random(device, shape, DType::f32, 1);
    const Tensor y = empty(device, shape);
    const Tensor dx = empty(device, shape);
    gelu(device, x, y);
    gelu_backward(device, x, y, dx);
    return std::vector{y, dx};
  });
}

TEST(Exp, IsWithinTwoUlpAndHasTheRightLimits) {
  using cpu::baseline::exp;
  double worst = 0;
  for (std::uint32_t i = 0; i < 400000; ++i) {
    const auto x = static_cast<float>(-86.5 + 175.2 * i / 400000.0);
    const double exact = std::exp(static_cast<double>(x));
    const auto rounded = static_cast<float>(exact);
    const double ulp =
        static_cast<double>(std::nextafter(rounded, INFINITY)) - static_cast<double>(rounded);
    worst = std::max(worst, std::abs(static_cast<double>(exp(x)) - exact) / ulp);
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(exp(0.0F), 1.0F);
  EXPECT_EQ(exp(-INFINITY), 0.0F);
  EXPECT_EQ(exp(-90.0F), 0.0F);
  EXPECT_EQ(exp(89.0F), INFINITY);
  EXPECT_EQ(exp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace engine::ops::test

#include "engine/ops/norm.hpp"

#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

constexpr double kEps = 1e-5;

struct Result {
  Values y, mean, rstd, dx, dweight, dbias;
};

/// Both norms; root mean square if not `centred`.
Result reference(bool centred, const Values& x, const Values& weight, const Values& bias,
                 const Values& dy = {}) {
  const std::size_t n = weight.size();
  const std::size_t rows = x.size() / n;
  Result r{Values(x.size()), Values(rows), Values(rows), Values(x.size()), Values(n), Values(n)};
  for (std::size_t row = 0; row < rows; ++row) {
    const double* const in = x.data() + row * n;
    double mean = 0;
    for (std::size_t i = 0; centred && i < n; ++i) mean += in[i] / static_cast<double>(n);
    double variance = 0;
    for (std::size_t i = 0; i < n; ++i) {
      variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(n);
    }
    const double rstd = 1 / std::sqrt(variance + kEps);
    r.mean[row] = mean;
    r.rstd[row] = rstd;
    double mean_d = 0;
    double mean_product = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double normal = (in[i] - mean) * rstd;
      r.y[row * n + i] = normal * weight[i] + (centred ? bias[i] : 0);
      if (dy.empty()) continue;
      const double d = dy[row * n + i];
      r.dweight[i] += d * normal;
      r.dbias[i] += d;
      if (centred) mean_d += d * weight[i] / static_cast<double>(n);
      mean_product += d * weight[i] * normal / static_cast<double>(n);
    }
    for (std::size_t i = 0; !dy.empty() && i < n; ++i) {
      const double normal = (in[i] - mean) * rstd;
      r.dx[row * n + i] = rstd * (dy[row * n + i] * weight[i] - mean_d - normal * mean_product);
    }
  }
  return r;
}

Values plus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

struct Sizes {
  std::int64_t batch, length, columns;
};
constexpr Sizes kSizes[] = {{1, 1, 1},  {1, 1, 3},    {2, 3, 7},    {1, 17, 63},
                            {3, 5, 65}, {2, 65, 130}, {1, 130, 768}};

ENGINE_OP_TEST(NormTest);

TEST_P(NormTest, LayerNormMatchesTheReference) {
  for (const auto& [batch, length, columns] : kSizes) {
    const Shape shape{batch, length, columns};
    const Tensor x = rand(shape, 1);
    assign(x, plus(values(x), Values(at(x.numel()), 0.5)));
    const Tensor weight = rand({columns}, 2);
    const Tensor bias = rand({columns}, 3);
    const Tensor dy = rand(shape, 4);
    const Tensor y = nans(shape);
    const Tensor mean = nans_f32({batch * length});
    const Tensor rstd = nans_f32({batch * length});
    layer_norm(device(), x, weight, bias, kEps, y, mean, rstd);
    const Result r = reference(true, values(x), values(weight), values(bias), values(dy));
    expect_close(y, r.y, bound(2e-6), "y");
    expect_close(mean, r.mean, 1e-6, "mean");
    expect_close(rstd, r.rstd, 1e-6, "rstd");
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      const bool add = write == Write::accumulate;
      const Tensor dx = add ? rand(shape, 5) : nans(shape);
      const Tensor dweight = add ? random(device(), {columns}, DType::f32, 6) : nans_f32({columns});
      const Tensor dbias = add ? random(device(), {columns}, DType::f32, 7) : nans_f32({columns});
      const auto expect = [&](const Tensor& t, const Values& v) {
        return add ? plus(values(t), v) : v;
      };
      const Values edx = expect(dx, r.dx);
      const Values edweight = expect(dweight, r.dweight);
      const Values edbias = expect(dbias, r.dbias);
      layer_norm_backward(device(), dy, x, weight, mean, rstd, dx, write, dweight, dbias, write);
      expect_close(dx, edx, bound(4e-6), "dx", 1);
      expect_close(dweight, edweight, 4e-6, "dweight", 1e-3);
      expect_close(dbias, edbias, 4e-6, "dbias");
    }
  }
}

TEST_P(NormTest, RmsNormMatchesTheReference) {
  for (const auto& [batch, length, columns] : kSizes) {
    const Shape shape{batch, length, columns};
    const Tensor x = rand(shape, 1);
    const Tensor weight = rand({columns}, 2);
    const Tensor dy = rand(shape, 4);
    const Tensor y = nans(shape);
    const Tensor rstd = nans_f32({batch * length});
    rms_norm(device(), x, weight, kEps, y, rstd);
    const Result r = reference(false, values(x), values(weight), {}, values(dy));
    expect_close(y, r.y, bound(2e-6), "y");
    expect_close(rstd, r.rstd, 1e-6, "rstd");
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      const bool add = write == Write::accumulate;
      const Tensor dx = add ? rand(shape, 5) : nans(shape);
      const Tensor dweight = add ? random(device(), {columns}, DType::f32, 6) : nans_f32({columns});
      const Values edx = add ? plus(values(dx), r.dx) : r.dx;
      const Values edweight = add ? plus(values(dweight), r.dweight) : r.dweight;
      rms_norm_backward(device(), dy, x, weight, rstd, dx, write, dweight, write);
      expect_close(dx, edx, bound(4e-6), "dx", 0.1);
      expect_close(dweight, edweight, 4e-6, "dweight");
    }
  }
}

TEST(Norm, ReferenceGradientsMatchFiniteDifferences) {
  const Values x = normals(21, 1);
  const Values weight = normals(7, 2);
  const Values bias = normals(7, 3);
  const Values dy = normals(21, 4);
  for (const bool centred : {false, true}) {
    const Result r = reference(centred, x, weight, bias, dy);
    expect_gradient([&](const Values& v) { return reference(centred, v, weight, bias).y; }, x, dy,
                    r.dx);
    expect_gradient([&](const Values& v) { return reference(centred, x, v, bias).y; }, weight, dy,
                    r.dweight);
    if (!centred) continue;
    expect_gradient([&](const Values& v) { return reference(centred, x, weight, v).y; }, bias, dy,
                    r.dbias);
  }
}

TEST(Norm, ThreadsDoNotMatter) {
  expect_threads_do_not_matter([](DeviceContext& device) {
    const Shape shape{400, 65};
    const Tensor x = random(device, shape, DType::f32, 1);
    const Tensor weight = random(device, {65}, DType::f32, 2);
    const Tensor y = empty(device, shape);
    const Tensor dx = empty(device, shape);
    const Tensor mean = empty(device, {400});
    const Tensor rstd = empty(device, {400});
    const Tensor dweight = empty(device, {65});
    const Tensor dbias = empty(device, {65});
    layer_norm(device, x, weight, weight, kEps, y, mean, rstd);
    layer_norm_backward(device, y, x, weight, mean, rstd, dx, Write::overwrite, dweight, dbias,
                        Write::overwrite);
    return std::vector{y, mean, rstd, dx, dweight, dbias};
  });
}

TEST(Norm, NonFiniteRowsStayApartAndMetaPassesThrough) {
  const auto device = make_device(1);
  const Tensor x = random(*device, {2, 5}, DType::f32, 1);
  x.data<float>()[7] = INFINITY;
  const Tensor weight = random(*device, {5}, DType::f32, 2);
  const Tensor y = empty(*device, {2, 5});
  const Tensor stats = empty(*device, {2});
  layer_norm(*device, x, weight, weight, kEps, y, stats, empty(*device, {2}));
  EXPECT_TRUE(std::isfinite(values(y)[0]));
  EXPECT_TRUE(std::isnan(values(y)[7]));

  const auto meta = make_meta_device();
  const Tensor mx = empty(*meta, {2, 5});
  const Tensor mw = empty(*meta, {5});
  const Tensor ms = empty(*meta, {2});
  layer_norm(*meta, mx, mw, mw, kEps, mx, ms, ms);
  rms_norm(*meta, mx, mw, kEps, mx, ms);
  EXPECT_EQ(meta->counters().matmul_flops, 0);
  EXPECT_THROW(rms_norm(*meta, mx, ms, kEps, mx, ms), Error);
  EXPECT_THROW(rms_norm(*meta, mx, mw, kEps, mx, mw), Error);
}

}  // namespace
}  // namespace engine::ops::test

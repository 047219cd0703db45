#include "engine/ops/rope.hpp"

#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

Values reference(const Values& x, const Shape& shape, double theta, std::int64_t first,
                 bool inverse) {
  Values y(x.size());
  const std::int64_t depth = shape[3];
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()) / depth; ++i) {
    const std::int64_t t = i / shape[2] % shape[1];
    for (std::int64_t d = 0; d < depth / 2; ++d) {
      const double power = -2.0 * static_cast<double>(d) / static_cast<double>(depth);
      const double angle =
          (inverse ? -1 : 1) * static_cast<double>(first + t) * std::pow(theta, power);
      const double a = x[at(i * depth + d)];
      const double b = x[at(i * depth + d + depth / 2)];
      y[at(i * depth + d)] = a * std::cos(angle) - b * std::sin(angle);
      y[at(i * depth + d + depth / 2)] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return y;
}

ENGINE_OP_TEST(RopeTest);

TEST_P(RopeTest, MatchesTheReferenceAndTurnsBack) {
  for (const Shape& shape : {Shape{1, 1, 1, 2}, Shape{2, 7, 3, 6}, Shape{1, 65, 2, 64}}) {
    const Tensor x = rand(shape, 1);
    const Tensor y = nans(shape);
    for (const bool inverse : {false, true}) {
      rope(device(), x, 10000, 3, inverse, y);
      expect_close(y, reference(values(x), shape, 10000, 3, inverse), bound(3e-7));
    }
    const Values before = values(x);
    rope(device(), x, 10000, 3, false, x);  // in place
    rope(device(), x, 10000, 3, true, x);
    expect_close(x, before, 2 * bound(5e-7));
  }
}

TEST_P(RopeTest, RowsMayBeStrided) {
  const Tensor fused = rand({2, 5, 3 * 8 + 4}, 1);
  const Tensor x = fused.slice(2, 4, 28).unflatten(2, 8);
  const Values expected = reference(values(x), x.shape(), 500000, 0, false);
  rope(device(), x, 500000, 0, false, x);
  expect_close(x, expected, bound(3e-7));
}

TEST(Rope, InverseIsTheGradient) {
  const Shape shape{1, 3, 2, 4};
  const Values dy = normals(24, 2);
  expect_gradient([&](const Values& v) { return reference(v, shape, 100, 2, false); },
                  normals(24, 1), dy, reference(dy, shape, 100, 2, true));
}

TEST(Rope, ThreadsDoNotMatterAndMetaPassesThrough) {
  expect_threads_do_not_matter([](DeviceContext& device) {
    const Tensor x = random(device, {2, 200, 4, 32}, DType::f32, 1);
    rope(device, x, 10000, 0, false, x);
    return std::vector{x};
  });
  const auto meta = make_meta_device();
  const Tensor x = empty(*meta, {1, 2, 3, 4});
  rope(*meta, x, 10000, 0, false, x);
  EXPECT_THROW(rope(*meta, empty(*meta, {1, 2, 3, 5}), 10000, 0, false, x), Error);
}

}  // namespace
}  // namespace engine::ops::test

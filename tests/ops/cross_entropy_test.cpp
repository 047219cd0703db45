#include "engine/ops/cross_entropy.hpp"

#include <algorithm>

#include "tests/ops/reference.hpp"

namespace engine::ops::test {
namespace {

struct Result {
  Values loss, gradient;
};

Result reference(const Values& logits, const Values& targets, double scale) {
  const std::size_t n = logits.size() / targets.size();
  Result r{Values(targets.size()), Values(logits.size())};
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const double* const x = logits.data() + row * n;
    const double top = *std::max_element(x, x + n);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
    const auto target = static_cast<std::size_t>(targets[row]);
    r.loss[row] = std::log(sum) + top - x[target];
    for (std::size_t i = 0; i < n; ++i) {
      r.gradient[row * n + i] = scale * (std::exp(x[i] - top) / sum - (i == target ? 1 : 0));
    }
  }
  return r;
}

ENGINE_OP_TEST(CrossEntropyTest);

TEST_P(CrossEntropyTest, MatchesTheReference) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {17, 65}, {5, 130}, {2, 50257}}) {
    const Tensor logits = rand({rows, columns}, 1, 3);
    const Tensor targets = tokens(device(), {rows}, columns, 2);
    if (rows > 2) targets.data<std::int32_t>()[1] = -1;
    const Result r = reference(values(logits), values(targets), 0.25);
    const Tensor loss = nans_f32({rows});
    cross_entropy(device(), logits, targets, loss);
    expect_close(loss, r.loss, 2e-7, "loss");
    const Tensor again = nans_f32({rows});
    cross_entropy_with_gradient(device(), logits, targets, 0.25, again);
    expect_same_bits(loss, again);
    const Values gradient = values(logits);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_LE(std::abs(gradient[i] - r.gradient[i]), bound() * std::abs(r.gradient[i]) + 1e-9)
          << i;
    }
  }
}

TEST_P(CrossEntropyTest, LargeLogitsDoNotOverflowAndNonFiniteOnesPropagate) {
  const Tensor logits = nans({4, 3});
  assign(logits, {1e4, -1e4, 0, std::nan(""), 0, 0, -INFINITY, 0, 0, INFINITY, 0, 0});
  const Tensor targets = nans_f32({4});
  const Tensor ids = tokens(device(), {4}, 1, 1);
  ids.data<std::int32_t>()[2] = 1;
  cross_entropy(device(), logits, ids, targets);
  const Values loss = values(targets);
  EXPECT_EQ(loss[0], 0);
  EXPECT_TRUE(std::isnan(loss[1]));
  EXPECT_NEAR(loss[2], std::log(2.0), 1e-7);
  EXPECT_TRUE(std::isnan(loss[3]));
}

TEST(CrossEntropy, ReferenceGradientMatchesFiniteDifferences) {
  const Values logits = normals(3 * 5, 1);
  const Values targets = {2, -1, 4};
  expect_gradient([&](const Values& x) { return reference(x, targets, 1).loss; }, logits,
                  {0.7, 0.7, 0.7}, reference(logits, targets, 0.7).gradient);
}

TEST(CrossEntropy, ThreadsDoNotMatterAndMetaPassesThrough) {
  expect_threads_do_not_matter([](DeviceContext& device) {
    const Tensor logits = random(device, {130, 300}, DType::f32, 1);
    const Tensor loss = empty(device, {130});
    cross_entropy_with_gradient(device, logits, tokens(device, {130}, 300, 2), 0.1, loss);
    return std::vector{loss, logits};
  });
  const auto meta = make_meta_device();
  const Tensor logits = empty(*meta, {3, 5});
  cross_entropy(*meta, logits, empty(*meta, {3}, DType::i32), empty(*meta, {3}));
  EXPECT_THROW(cross_entropy(*meta, logits, empty(*meta, {3}), empty(*meta, {3})), Error);
  EXPECT_THROW(cross_entropy(*meta, logits, empty(*meta, {3}, DType::i32), empty(*meta, {5})),
               Error);
}

}  // namespace
}  // namespace engine::ops::test

// Every differentiable function against central differences along random directions.
#include "engine/autograd/functions.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "tests/support/fixture.hpp"

namespace engine::autograd {
namespace {

class Functions : public ::testing::Test {
 protected:
  parallel::RankContext rank_ = test::cpu_rank();
  DeviceContext& device_ = rank_.device();
  std::mt19937 random_{5};
  std::vector<std::unique_ptr<Parameter>> parameters_;

  Tensor random_tensor(const Shape& shape) {
    const Tensor t = device_.empty(shape, DType::f32, Category::workspace);
    std::normal_distribution<float> normal;
    for (float& x : t.span<float>()) x = normal(random_);
    return t;
  }

  Parameter& parameter(const Shape& shape) {
    parameters_.push_back(std::make_unique<Parameter>(ParameterSpec{
        "p" + std::to_string(parameters_.size()), shape, Init::zeros(), Role::matrix, 1, 0}));
    Parameter& p = *parameters_.back();
    p.bind_value(random_tensor(shape));
    const Tensor gradient = device_.empty(shape, DType::f32, Category::workspace);
    for (float& g : gradient.span<float>()) g = NAN;  // whoever writes first must overwrite
    p.bind_gradient(gradient);
    return p;
  }

  using Function = std::function<Value(Tape&, const std::vector<Value>&)>;

  static double dot(const Tensor& a, const Tensor& b) {
    double sum = 0;
    const auto x = a.span<float>();
    const auto y = b.span<float>();
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * y[i];
    return sum;
  }

  double evaluate(const Function& f, const std::vector<Tensor>& inputs, const Tensor& dy) {
    Tape tape(device_, Tape::Mode::replay);
    std::vector<Value> values;
    for (const Tensor& t : inputs) values.push_back({t, -1});
    return dot(f(tape, values).tensor, dy);
  }

  /// d/dt of <f(x + t v), dy> at 0, by differences, against <df, v>.
  void check(const Function& f, std::vector<Tensor> inputs, bool split = false) {
    Tape tape(device_, Tape::Mode::record);
    std::vector<Value> values;
    for (const Tensor& t : inputs) values.push_back(tape.input(t));
    const Value y = f(tape, values);
    const Tensor dy = random_tensor(y.tensor.shape());
    tape.seed(y, dy);
    tape.backward_input(split);
    if (split) tape.backward_weight();
    std::vector<std::pair<Tensor, Tensor>> pairs;  // what can move, and its gradient
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      pairs.emplace_back(inputs[i], tape.gradient(values[i]));
    }
    for (const auto& p : parameters_) pairs.emplace_back(p->value(), p->gradient());
    for (auto& [x, gradient] : pairs) {
      ASSERT_TRUE(static_cast<bool>(gradient));
      const Tensor direction = random_tensor(x.shape());
      constexpr float kStep = 1e-2F;
      const auto move = [&](float by) {
        const auto xs = x.span<float>();
        const auto ds = direction.span<float>();
        for (std::size_t i = 0; i < xs.size(); ++i) xs[i] += by * ds[i];
      };
      move(kStep);
      const double up = evaluate(f, inputs, dy);
      move(-2 * kStep);
      const double down = evaluate(f, inputs, dy);
      move(kStep);
      const double expected = (up - down) / (2 * static_cast<double>(kStep));
      const double scale =
          std::max(1.0, std::sqrt(dot(gradient, gradient) * dot(direction, direction)));
      EXPECT_NEAR(dot(gradient, direction), expected, 3e-3 * scale) << x.shape().str();
    }
  }
};

TEST_F(Functions, LinearInBothLayouts) {
  Parameter& w = parameter({5, 7});
  Parameter& b = parameter({7});
  check([&](Tape& t, const auto& x) { return linear(t, x[0], w, &b, WeightLayout::in_out); },
        {random_tensor({2, 3, 5})});
  parameters_.clear();
  Parameter& v = parameter({7, 5});
  check([&](Tape& t, const auto& x) { return linear(t, x[0], v, nullptr, WeightLayout::out_in); },
        {random_tensor({2, 3, 5})}, /*split=*/true);
}

TEST_F(Functions, Norms) {
  Parameter& w = parameter({9});
  Parameter& b = parameter({9});
  check([&](Tape& t, const auto& x) { return layer_norm(t, x[0], w, b, 1e-5); },
        {random_tensor({2, 3, 9})});
  parameters_.clear();
  Parameter& r = parameter({9});
  check([&](Tape& t, const auto& x) { return rms_norm(t, x[0], r, 1e-5); },
        {random_tensor({2, 3, 9})});
}

TEST_F(Functions, Activations) {
  check([](Tape& t, const auto& x) { return gelu(t, x[0]); }, {random_tensor({4, 11})});
  check([](Tape& t, const auto& x) { return swiglu(t, x[0], x[1]); },
        {random_tensor({4, 11}), random_tensor({4, 11})});
}

TEST_F(Functions, RopeAndAttention) {
  const AttentionShape shape = {4, 2, 6};
  check([](Tape& t, const auto& x) { return rope(t, x[0], 6, 10000.0); },
        {random_tensor({2, 5, 24})});
  check([&](Tape& t, const auto& x) { return attention(t, x[0], x[1], x[2], shape, {}); },
        {random_tensor({2, 5, 24}), random_tensor({2, 5, 12}), random_tensor({2, 5, 12})});
  check(
      [&](Tape& t, const auto& x) {
        return attention_qkv(t, x[0], shape, {0.3F, 77, 4});
      },
      {random_tensor({2, 5, 48})});
}

TEST_F(Functions, DropoutUsesOneMaskBothWays) {
  check(
      [](Tape& t, const auto& x) {
        return dropout(t, x[0], {0.4F, 9, 2});
      },
      {random_tensor({3, 10})});
}

TEST_F(Functions, AValueUsedSeveralTimesCollectsAllGradients) {
  Parameter& w = parameter({6, 6});
  Parameter& n = parameter({6});
  check(
      [&](Tape& t, const auto& x) {
        const Value h = rms_norm(t, x[0], n, 1e-5);
        const Value a = add(t, x[0], linear(t, h, w, nullptr, WeightLayout::in_out));
        const Value b = add(t, a, gelu(t, a));
        return add(t, b, add(t, a, x[0]));
      },
      {random_tensor({3, 6})});
}

TEST_F(Functions, EmbeddingGathersAndScatters) {
  Parameter& table = parameter({8, 5});
  Parameter& positions = parameter({6, 5});
  const Tensor tokens = device_.empty({2, 4}, DType::i32, Category::workspace);
  const std::int32_t ids[] = {1, 7, 1, 0, 3, 3, 3, 2};
  std::copy(std::begin(ids), std::end(ids), tokens.span<std::int32_t>().begin());
  check([&](Tape& t, const auto&) { return embedding(t, tokens, table, &positions); }, {});
}

/// The head's loss and gradients against plain double arithmetic.
TEST_F(Functions, SoftmaxHeadInChunksMatchesDoubles) {
  constexpr std::int64_t kRows = 1100;  // three chunks, the last one short
  constexpr std::int64_t kVocab = 13;
  constexpr std::int64_t kChannels = 4;
  Parameter& w = parameter({kVocab, kChannels});
  const Tensor x = random_tensor({1, kRows, kChannels});
  const Tensor targets = device_.empty({1, kRows}, DType::i32, Category::workspace);
  for (std::int64_t i = 0; i < kRows; ++i) {
    targets.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % 5 == 0 ? -1 : i % kVocab);
  }
  constexpr double kScale = 0.25;
  Tape tape(device_, Tape::Mode::record);
  const Value input = tape.input(x);
  const double loss = softmax_cross_entropy_head(tape, input, w, targets, kScale);
  tape.backward_input();

  double expected_loss = 0;
  std::vector<double> dx(static_cast<std::size_t>(kRows * kChannels));
  std::vector<double> dw(static_cast<std::size_t>(kVocab * kChannels));
  const float* weights = w.value().data<float>();
  for (std::int64_t r = 0; r < kRows; ++r) {
    const float* row = x.data<float>() + r * kChannels;
    const std::int32_t target = targets.data<std::int32_t>()[r];
    if (target < 0) continue;
    double logits[kVocab];
    double sum = 0;
    for (std::int64_t v = 0; v < kVocab; ++v) {
      logits[v] = 0;
      for (std::int64_t c = 0; c < kChannels; ++c) {
        logits[v] += static_cast<double>(row[c]) * weights[v * kChannels + c];
      }
      sum += std::exp(logits[v]);
    }
    expected_loss += std::log(sum) - logits[target];
    for (std::int64_t v = 0; v < kVocab; ++v) {
      const double d = kScale * (std::exp(logits[v]) / sum - (v == target ? 1 : 0));
      for (std::int64_t c = 0; c < kChannels; ++c) {
        dx[static_cast<std::size_t>(r * kChannels + c)] += d * weights[v * kChannels + c];
        dw[static_cast<std::size_t>(v * kChannels + c)] += d * row[c];
      }
    }
  }
  EXPECT_NEAR(loss, expected_loss, 1e-6 * expected_loss);
  EXPECT_LT(test::relative_l2(tape.gradient(input).span<float>(), dx), 2e-6);
  EXPECT_LT(test::relative_l2(w.gradient().span<float>(), dw), 2e-6);
}

TEST_F(Functions, NothingIsKeptAfterBackward) {
  Parameter& w = parameter({16, 16});
  const Tensor x = random_tensor({8, 16});
  const auto in_use = [&] {
    return device_.memory().stats().categories[static_cast<int>(Category::activations)].now_bytes;
  };
  const std::int64_t before = in_use();
  {
    Tape tape(device_, Tape::Mode::record);
    Value v = tape.input(x);
    for (int i = 0; i < 4; ++i) v = gelu(tape, linear(tape, v, w, nullptr, WeightLayout::in_out));
    tape.seed(v, random_tensor({8, 16}));
    v = {};
    tape.backward_input();
    EXPECT_EQ(in_use() - before, 8 * 16 * 4);  // the gradient of x alone
  }
  EXPECT_EQ(in_use(), before);
}

TEST_F(Functions, AParameterIsReadOnlyWhileItsUnitIsResident) {
  Parameter& w = parameter({3, 3});
  w.bind_value({});
  Tape tape(device_, Tape::Mode::replay);
  try {
    linear(tape, {random_tensor({1, 3})}, w, nullptr, WeightLayout::in_out);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("p0"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace engine::autograd

#include "engine/optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "engine/core/error.hpp"

namespace engine::optim {
namespace {

/// A flat state in plain vectors: 40000 elements, three segments with gaps between and after.
struct Fixture {
  static constexpr std::int64_t kNumel = 40000;

  explicit Fixture(int threads = 1, DType moment_type = DType::f32, std::size_t moments = 2)
      : device(options(threads), nullptr) {
    segments = {{.begin = 0, .numel = 20001, .decay = true},
                {.begin = 20016, .numel = 37, .decay = false},
                {.begin = 20064, .numel = 19900, .decay = true}};
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    state.master = device.empty({kNumel}, DType::f32, Category::optimizer);
    state.gradient = device.empty({kNumel}, DType::f32, Category::gradients);
    state.low_precision = device.empty({kNumel}, DType::bf16, Category::parameters);
    std::memset(state.low_precision.raw(), 0, state.low_precision.bytes());
    for (std::size_t k = 0; k < moments; ++k) {
      state.moments.push_back(device.empty({kNumel}, moment_type, Category::optimizer));
      std::memset(state.moments.back().raw(), 0, state.moments.back().bytes());
    }
    std::memset(state.master.raw(), 0, state.master.bytes());
    for (const Segment& segment : segments) {
      for (std::int64_t i = 0; i < segment.numel; ++i) {
        state.master.data<float>()[segment.begin + i] = normal(random);
      }
    }
    state.segments = segments;
  }

  static DeviceContext::Options options(int threads) {
    DeviceContext::Options options;
    options.threads = threads;
    options.arena_bytes = std::size_t{64} << 20;
    return options;
  }

  void new_gradient(int step) {
    std::mt19937 random(static_cast<unsigned>(100 + step));
    std::normal_distribution<float> normal;
    for (float& g : state.gradient.span<float>()) g = normal(random);
  }

  DeviceContext device;
  std::vector<Segment> segments;
  FlatState state;
};

double rate(int step) { return 1e-2 / step; }

void run(const Optimizer& optimizer, Fixture& f, int steps) {
  for (int t = 1; t <= steps; ++t) {
    f.new_gradient(t);
    optimizer.step(f.device, f.state, {.lr = rate(t), .gradient_scale = 0.7, .step = t});
  }
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

struct Reference {
  double w, m = 0, v = 0;
};

void reference_step(const OptimizerConfig& c, Reference& r, double g, double wd, int t) {
  const double lr = rate(t);
  g *= 0.7;
  r.w *= 1 - lr * wd;
  if (c.name == "adamw") {
    r.m = c.beta1 * r.m + (1 - c.beta1) * g;
    r.v = c.beta2 * r.v + (1 - c.beta2) * g * g;
    const double mhat = r.m / (1 - std::pow(c.beta1, t));
    const double vhat = r.v / (1 - std::pow(c.beta2, t));
    r.w -= lr * mhat / (std::sqrt(vhat) + c.eps);
  } else if (c.name == "sgd") {
    r.m = c.momentum * r.m + g;
    r.w -= lr * r.m;
  } else {
    const double direction = c.beta1 * r.m + (1 - c.beta1) * g;
    r.w -= lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    r.m = c.beta2 * r.m + (1 - c.beta2) * g;
  }
}

class Rules : public testing::TestWithParam<const char*> {
 protected:
  OptimizerConfig config() const {
    OptimizerConfig c;
    c.name = GetParam();
    return c;
  }
};

TEST_P(Rules, FollowsTheFloat64Reference) {
  const auto optimizer = make_optimizer(config());
  EXPECT_EQ(optimizer->name(), GetParam());
  Fixture f(1, DType::f32, optimizer->moment_names().size());
  std::vector<Reference> reference;
  for (const float w : f.state.master.span<float>()) reference.push_back({w});
  for (int t = 1; t <= 20; ++t) {
    f.new_gradient(t);
    for (const Segment& s : f.segments) {
      for (std::int64_t i = s.begin; i < s.begin + s.numel; ++i) {
        reference_step(config(), reference[static_cast<std::size_t>(i)],
                       f.state.gradient.data<float>()[i], s.decay ? 0.1 : 0.0, t);
      }
    }
    optimizer->step(f.device, f.state, {.lr = rate(t), .gradient_scale = 0.7, .step = t});
  }
  for (std::int64_t i = 0; i < Fixture::kNumel; ++i) {
    const double expected = reference[static_cast<std::size_t>(i)].w;
    ASSERT_NEAR(f.state.master.data<float>()[i], expected, 2e-6 * (1 + std::abs(expected))) << i;
  }
}

TEST_P(Rules, DecaysOnlyWhereSegmentsSaySo) {
  const auto optimizer = make_optimizer(config());
  Fixture f(1, DType::f32, optimizer->moment_names().size());
  std::memset(f.state.gradient.raw(), 0, f.state.gradient.bytes());
  const auto master = f.state.master.span<float>();
  const std::vector<float> before(master.begin(), master.end());
  optimizer->step(f.device, f.state, {.lr = 0.5, .step = 1});
  for (const Segment& s : f.segments) {
    for (std::int64_t i = s.begin; i < s.begin + s.numel; ++i) {
      const float old = before[static_cast<std::size_t>(i)];
      ASSERT_EQ(f.state.master.data<float>()[i], s.decay ? old * 0.95F : old);
    }
  }
}

TEST_P(Rules, LeavesPaddingAlone) {
  const auto optimizer = make_optimizer(config());
  Fixture f(1, DType::f32, optimizer->moment_names().size());
  run(*optimizer, f, 3);
  std::vector<bool> covered(Fixture::kNumel);
  for (const Segment& s : f.segments) {
    for (std::int64_t i = 0; i < s.numel; ++i)
      covered[static_cast<std::size_t>(s.begin + i)] = true;
  }
  for (std::int64_t i = 0; i < Fixture::kNumel; ++i) {
    if (covered[static_cast<std::size_t>(i)]) continue;
    ASSERT_EQ(f.state.master.data<float>()[i], 0.0F);
    ASSERT_EQ(f.state.low_precision.data<bf16>()[i].bits, 0);
    for (const Tensor& moment : f.state.moments) ASSERT_EQ(moment.data<float>()[i], 0.0F);
  }
}

TEST_P(Rules, LowPrecisionIsTheRoundedMaster) {
  const auto optimizer = make_optimizer(config());
  Fixture f(1, DType::f32, optimizer->moment_names().size());
  run(*optimizer, f, 2);
  for (const Segment& s : f.segments) {
    for (std::int64_t i = s.begin; i < s.begin + s.numel; ++i) {
      ASSERT_EQ(f.state.low_precision.data<bf16>()[i].bits,
                bf16(f.state.master.data<float>()[i]).bits);
    }
  }
  Fixture without(1, DType::f32, optimizer->moment_names().size());
  without.state.low_precision = {};
  run(*optimizer, without, 2);
  EXPECT_TRUE(equal_bits(f.state.master, without.state.master));
}

TEST_P(Rules, Bf16MomentsTrackTheExactOnes) {
  const auto optimizer = make_optimizer(config());
  Fixture exact(1, DType::f32, optimizer->moment_names().size());
  Fixture rounded(1, DType::bf16, optimizer->moment_names().size());
  std::vector<float> start(exact.state.master.span<float>().begin(),
                           exact.state.master.span<float>().end());
  run(*optimizer, exact, 20);
  run(*optimizer, rounded, 20);
  double difference = 0;
  double moved = 0;
  for (std::int64_t i = 0; i < Fixture::kNumel; ++i) {
    const double a = exact.state.master.data<float>()[i];
    difference += std::pow(a - rounded.state.master.data<float>()[i], 2);
    moved += std::pow(a - start[static_cast<std::size_t>(i)], 2);
  }
  EXPECT_GT(difference, 0);
  // Lion takes whole steps, so a sign that flips costs more.
  EXPECT_LT(std::sqrt(difference / moved), config().name == "lion" ? 0.1 : 0.02);
}

TEST_P(Rules, ThreadCountDoesNotChangeABit) {
  const auto optimizer = make_optimizer(config());
  for (const DType type : {DType::f32, DType::bf16}) {
    Fixture one(1, type, optimizer->moment_names().size());
    Fixture four(4, type, optimizer->moment_names().size());
    run(*optimizer, one, 3);
    run(*optimizer, four, 3);
    EXPECT_TRUE(equal_bits(one.state.master, four.state.master));
    EXPECT_TRUE(equal_bits(one.state.low_precision, four.state.low_precision));
    for (std::size_t k = 0; k < one.state.moments.size(); ++k) {
      EXPECT_TRUE(equal_bits(one.state.moments[k], four.state.moments[k]));
    }
  }
}

/// Steps the parts [0, cut) and [cut, n) of a state one after the other.
void step_in_two(const Optimizer& optimizer, Fixture& f, std::int64_t cut,
                 const StepScalars& scalars) {
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, Fixture::kNumel}}) {
    std::vector<Segment> segments;
    for (Segment s : f.segments) {
      const std::int64_t from = std::max(s.begin, begin);
      const std::int64_t to = std::min(s.begin + s.numel, end);
      if (from >= to) continue;
      s.begin = from - begin;
      s.numel = to - from;
      segments.push_back(s);
    }
    FlatState part = {.master = f.state.master.slice(0, begin, end),
                      .gradient = f.state.gradient.slice(0, begin, end),
                      .moments = {},
                      .low_precision = f.state.low_precision.slice(0, begin, end),
                      .segments = segments};
    for (const Tensor& moment : f.state.moments) {
      part.moments.push_back(moment.slice(0, begin, end));
    }
    optimizer.step(f.device, part, scalars);
  }
}

TEST_P(Rules, ShardsGiveTheBitsOfTheWhole) {
  const auto optimizer = make_optimizer(config());
  for (const std::int64_t cut : {1, 7777, 20017, 39999}) {
    Fixture whole(1, DType::f32, optimizer->moment_names().size());
    Fixture parts(1, DType::f32, optimizer->moment_names().size());
    for (int t = 1; t <= 2; ++t) {
      const StepScalars scalars = {.lr = rate(t), .gradient_scale = 0.3, .step = t};
      whole.new_gradient(t);
      parts.new_gradient(t);
      optimizer->step(whole.device, whole.state, scalars);
      step_in_two(*optimizer, parts, cut, scalars);
    }
    EXPECT_TRUE(equal_bits(whole.state.master, parts.state.master)) << cut;
    EXPECT_TRUE(equal_bits(whole.state.low_precision, parts.state.low_precision)) << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rules, testing::Values("adamw", "sgd", "lion"),
                         [](const auto& test) { return std::string(test.param); });

void expect_refused(const OptimizerConfig& config, const std::string& key) {
  try {
    make_optimizer(config);
    FAIL() << key;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
  }
}

TEST(MakeOptimizer, RefusesWrongValuesByKey) {
  expect_refused({.name = "adam"}, "optimizer.name");
  expect_refused({.beta1 = 1.0}, "optimizer.betas[0]");
  expect_refused({.beta2 = -0.1}, "optimizer.betas[1]");
  expect_refused({.eps = 0}, "optimizer.eps");
  expect_refused({.momentum = std::nan("")}, "optimizer.momentum");
  expect_refused({.weight_decay = -1}, "optimizer.weight_decay");
}

TEST(Optimizer, RefusesTensorsThatDoNotFit) {
  const auto optimizer = make_optimizer({});
  Fixture f(1, DType::f32, 1);
  EXPECT_THROW(optimizer->step(f.device, f.state, {}), Error);
  Fixture overlapping;
  overlapping.segments[1].begin = 20000;
  EXPECT_THROW(optimizer->step(overlapping.device, overlapping.state, {}), Error);
}

}  // namespace
}  // namespace engine::optim

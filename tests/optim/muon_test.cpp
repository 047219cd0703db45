#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/ops/table.hpp"
#include "engine/optim/optimizer.hpp"

namespace engine::optim {
namespace {

/// Dense matrix in float64, for the reference.
struct Matrix {
  std::int64_t rows, cols;
  std::vector<double> values;

  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t k) {
    return values[static_cast<std::size_t>(i * cols + k)];
  }
  double operator()(std::int64_t i, std::int64_t k) const {
    return values[static_cast<std::size_t>(i * cols + k)];
  }
};

Matrix transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.cols; ++k) t(k, i) = a(i, k);
  }
  return t;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.cols; ++j) {
      for (std::int64_t k = 0; k < b.cols; ++k) c(i, k) += a(i, j) * b(j, k);
    }
  }
  return c;
}

/// As in the reference implementation of Muon: on the wide orientation, X <- a X + (b A + c A^2) X.
Matrix newton_schulz(const Matrix& g) {
  Matrix x = g.rows > g.cols ? transposed(g) : g;
  double norm = 0;
  for (const double v : x.values) norm += v * v;
  for (double& v : x.values) v /= std::sqrt(norm) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Matrix a = product(x, transposed(x));
    Matrix b = product(a, a);
    for (std::size_t i = 0; i < b.values.size(); ++i) {
      b.values[i] = -4.7750 * a.values[i] + 2.0315 * b.values[i];
    }
    Matrix next = product(b, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) next.values[i] += 3.4445 * x.values[i];
    x = next;
  }
  return g.rows > g.cols ? transposed(x) : x;
}

/// Singular values: square roots of the eigenvalues of the smaller Gram matrix, by Jacobi
/// rotations.
std::vector<double> singular_values(const Matrix& m) {
  Matrix a = m.rows < m.cols ? product(m, transposed(m)) : product(transposed(m), m);
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (std::int64_t p = 0; p < a.rows; ++p) {
      for (std::int64_t q = p + 1; q < a.rows; ++q) {
        if (std::abs(a(p, q)) < 1e-14) continue;
        const double angle = 0.5 * std::atan2(2 * a(p, q), a(q, q) - a(p, p));
        const double c = std::cos(angle);
        const double s = std::sin(angle);
        for (std::int64_t k = 0; k < a.rows; ++k) {
          const double x = a(p, k);
          const double y = a(q, k);
          a(p, k) = c * x - s * y;
          a(q, k) = s * x + c * y;
        }
        for (std::int64_t k = 0; k < a.rows; ++k) {
          const double x = a(k, p);
          const double y = a(k, q);
          a(k, p) = c * x - s * y;
          a(k, q) = s * x + c * y;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::int64_t i = 0; i < a.rows; ++i) values.push_back(std::sqrt(std::max(a(i, i), 0.0)));
  return values;
}

struct Fixture {
  Fixture(std::vector<Segment> layout, std::int64_t numel, int threads = 1,
          DType moments = DType::f32)
      : segments(std::move(layout)) {
    DeviceContext::Options options;
    options.threads = threads;
    options.arena_bytes = std::size_t{64} << 20;
    device = ops::make_device_context(options);
    const auto zeros = [&](DType dtype) {
      Tensor tensor = device->empty({numel}, dtype, Category::optimizer);
      std::memset(tensor.raw(), 0, tensor.bytes());
      return tensor;
    };
    state = {.master = zeros(DType::f32),
             .gradient = zeros(DType::f32),
             .moments = {zeros(moments), zeros(moments)},
             .low_precision = zeros(DType::bf16),
             .segments = segments};
  }
  void fill(const Tensor& tensor, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : tensor.span<float>()) value = normal(random);
  }

  std::vector<Segment> segments;
  std::unique_ptr<DeviceContext> device;
  FlatState state;
};

Segment matrix_segment(std::int64_t begin, std::int64_t rows, std::int64_t cols, int sections = 1,
                       int section_dim = 0) {
  return {.begin = begin,
          .numel = rows * cols,
          .decay = true,
          .matrix = true,
          .rows = rows,
          .cols = cols,
          .sections = sections,
          .section_dim = section_dim};
}

std::unique_ptr<Optimizer> muon(double momentum = 0.9, double weight_decay = 0.1) {
  return make_optimizer({.name = "muon", .momentum = momentum, .weight_decay = weight_decay});
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST(Muon, MakesSingularValuesNearlyOneAsTheReferenceDoes) {
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {16, 48}, {48, 16}, {33, 7}, {7, 33}, {1, 9}, {9, 1}, {24, 31}, {31, 24}, {65, 130}}) {
    Fixture f({matrix_segment(0, rows, cols)}, rows * cols);
    f.fill(f.state.gradient, 5);
    muon(0, 0)->step(*f.device, f.state, {.lr = 1, .gradient_scale = 0.5, .step = 1});
    const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
    Matrix gradient(rows, cols);
    Matrix direction(rows, cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      gradient.values[static_cast<std::size_t>(i)] = f.state.gradient.data<float>()[i];
      direction.values[static_cast<std::size_t>(i)] = -f.state.master.data<float>()[i] / scale;
    }
    for (const double value : singular_values(direction)) {
      EXPECT_GT(value, 0.6) << rows << " x " << cols;
      EXPECT_LT(value, 1.3) << rows << " x " << cols;
    }
    const Matrix expected = newton_schulz(gradient);
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      ASSERT_NEAR(direction.values[i], expected.values[i], 2e-4) << rows << " x " << cols;
    }
  }
}

TEST(Muon, FollowsTheFloat64ReferenceWithMomentumAndDecay) {
  constexpr std::int64_t kRows = 12;
  constexpr std::int64_t kCols = 20;
  Fixture f({matrix_segment(0, kRows, kCols)}, kRows * kCols);
  f.fill(f.state.master, 1);
  Matrix w(kRows, kCols);
  Matrix m(kRows, kCols);
  for (std::size_t i = 0; i < w.values.size(); ++i) w.values[i] = f.state.master.data<float>()[i];
  for (int t = 1; t <= 20; ++t) {
    f.fill(f.state.gradient, static_cast<unsigned>(10 + t));
    Matrix u(kRows, kCols);
    for (std::size_t i = 0; i < w.values.size(); ++i) {
      const double g = 0.7 * f.state.gradient.data<float>()[i];
      m.values[i] = 0.9 * m.values[i] + g;
      u.values[i] = g + 0.9 * m.values[i];
    }
    const Matrix o = newton_schulz(u);
    for (std::size_t i = 0; i < w.values.size(); ++i) {
      w.values[i] = w.values[i] * (1 - 0.01 * 0.1) - 0.01 * 0.2 * std::sqrt(20.0) * o.values[i];
    }
    muon()->step(*f.device, f.state, {.lr = 0.01, .gradient_scale = 0.7, .step = t});
  }
  for (std::size_t i = 0; i < w.values.size(); ++i) {
    ASSERT_NEAR(f.state.master.data<float>()[i], w.values[i], 1e-4);
    ASSERT_EQ(f.state.low_precision.data<bf16>()[i].bits,
              bf16(f.state.master.data<float>()[i]).bits);
  }
}

TEST(Muon, TreatsSectionsAsMatricesOfTheirOwn) {
  constexpr std::int64_t kRows = 18;
  constexpr std::int64_t kCols = 30;
  for (const int dim : {0, 1}) {
    Fixture fused({matrix_segment(0, kRows, kCols, 3, dim)}, kRows * kCols);
    fused.fill(fused.state.master, 1);
    fused.fill(fused.state.gradient, 2);
    const std::int64_t rows = dim == 0 ? kRows / 3 : kRows;
    const std::int64_t cols = dim == 1 ? kCols / 3 : kCols;
    const std::int64_t n = rows * cols;
    Fixture apart({matrix_segment(0, rows, cols), matrix_segment(n, rows, cols),
                   matrix_segment(2 * n, rows, cols)},
                  3 * n);
    const auto place = [&](std::int64_t section, std::int64_t row, std::int64_t col) {
      return dim == 0 ? (section * rows + row) * kCols + col : row * kCols + section * cols + col;
    };
    const auto for_each = [&](auto&& body) {
      for (std::int64_t s = 0; s < 3; ++s) {
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t k = 0; k < cols; ++k) body(place(s, i, k), s * n + i * cols + k);
        }
      }
    };
    for_each([&](std::int64_t in_fused, std::int64_t in_apart) {
      apart.state.master.data<float>()[in_apart] = fused.state.master.data<float>()[in_fused];
      apart.state.gradient.data<float>()[in_apart] = fused.state.gradient.data<float>()[in_fused];
    });
    muon()->step(*fused.device, fused.state, {.lr = 0.1, .step = 1});
    muon()->step(*apart.device, apart.state, {.lr = 0.1, .step = 1});
    for_each([&](std::int64_t in_fused, std::int64_t in_apart) {
      ASSERT_EQ(fused.state.master.data<float>()[in_fused],
                apart.state.master.data<float>()[in_apart]);
      ASSERT_EQ(fused.state.low_precision.data<bf16>()[in_fused].bits,
                apart.state.low_precision.data<bf16>()[in_apart].bits);
    });
  }
}

/// A matrix between an embedding-like and a norm-like segment, with padding.
std::vector<Segment> mixed_layout() {
  return {{.begin = 0, .numel = 1000, .decay = true},
          matrix_segment(1024, 64, 96),
          {.begin = 7168, .numel = 64, .decay = false}};
}

TEST(Muon, StepsAllElseLikeAdamW) {
  Fixture a(mixed_layout(), 7300);
  Fixture b(mixed_layout(), 7300);
  const auto adamw = make_optimizer({});
  for (int t = 1; t <= 3; ++t) {
    a.fill(a.state.gradient, static_cast<unsigned>(t));
    b.fill(b.state.gradient, static_cast<unsigned>(t));
    muon()->step(*a.device, a.state, {.lr = 0.01, .step = t});
    adamw->step(*b.device, b.state, {.lr = 0.01, .step = t});
  }
  for (std::int64_t i = 0; i < 7300; ++i) {
    if (i >= 1024 && i < 7168) continue;
    ASSERT_EQ(a.state.master.data<float>()[i], b.state.master.data<float>()[i]) << i;
    if (i >= 1000 && (i < 1024 || i >= 7232)) {
      ASSERT_EQ(a.state.master.data<float>()[i], 0.0F);
    }
  }
}

TEST(Muon, ThreadCountDoesNotChangeABit) {
  for (const DType moments : {DType::f32, DType::bf16}) {
    Fixture one(mixed_layout(), 7300, 1, moments);
    Fixture four(mixed_layout(), 7300, 4, moments);
    for (int t = 1; t <= 3; ++t) {
      for (const Fixture* f : {&one, &four}) {
        f->fill(f->state.gradient, static_cast<unsigned>(t));
        muon()->step(*f->device, f->state, {.lr = 0.01, .step = t});
      }
    }
    EXPECT_TRUE(equal_bits(one.state.master, four.state.master));
    EXPECT_TRUE(equal_bits(one.state.low_precision, four.state.low_precision));
    EXPECT_TRUE(equal_bits(one.state.moments[0], four.state.moments[0]));
  }
}

TEST(Muon, ZeroGradientOnlyDecays) {
  Fixture f(mixed_layout(), 7300);
  f.fill(f.state.master, 1);
  const std::vector<float> before(f.state.master.span<float>().begin(),
                                  f.state.master.span<float>().end());
  muon()->step(*f.device, f.state, {.lr = 0.5, .step = 1});
  for (std::int64_t i = 1024; i < 7168; ++i) {
    ASSERT_EQ(f.state.master.data<float>()[i], before[static_cast<std::size_t>(i)] * 0.95F);
  }
  for (std::int64_t i = 7168; i < 7300; ++i) {
    ASSERT_EQ(f.state.master.data<float>()[i], before[static_cast<std::size_t>(i)]);
  }
}

TEST(Muon, TakesNoNewMemoryAfterTheFirstStep) {
  Fixture f(mixed_layout(), 7300);
  f.fill(f.state.gradient, 1);
  muon()->step(*f.device, f.state, {.lr = 0.1, .step = 1});
  const std::int64_t committed = f.device->memory().stats().committed_bytes;
  for (int t = 2; t < 6; ++t) muon()->step(*f.device, f.state, {.lr = 0.1, .step = t});
  EXPECT_EQ(f.device->memory().stats().committed_bytes, committed);
}

TEST(Muon, RefusesPartsOfMatrices) {
  Fixture f({matrix_segment(0, 10, 10)}, 100);
  f.segments[0].numel = 90;
  EXPECT_THROW(muon()->step(*f.device, f.state, {}), Error);
  f.segments[0] = matrix_segment(0, 10, 10, 3, 1);
  EXPECT_THROW(muon()->step(*f.device, f.state, {}), Error);
}

}  // namespace
}  // namespace engine::optim

#include "optim/muon.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/ops/elementwise.hpp"
#include "engine/ops/matmul.hpp"
#include "engine/optim/rules.hpp"
#include "optim/flat_pass.hpp"

namespace engine::optim::detail {

namespace {

using ops::Trans;
using ops::Write;

constexpr int kIterations = 5;
constexpr float kA = 3.4445F;
constexpr float kB = -4.7750F;
constexpr float kC = 2.0315F;

/// Runs `body(begin, end)` over fixed chunks of [0, n).
void for_chunks(DeviceContext& device, std::int64_t n, std::int64_t chunk,
                FunctionRef<void(std::int64_t, std::int64_t)> body) {
  device.pool().parallel_for((n + chunk - 1) / chunk, [&](std::int64_t i) {
    body(i * chunk, std::min(i * chunk + chunk, n));
  });
}

constexpr std::int64_t kChunk = 16384;

/// m = momentum * m + g; u = g + momentum * m.
template <class Moment>
void nesterov(DeviceContext& device, const float* g, Moment* m, float* u, std::int64_t n,
              float momentum, float gradient_scale) {
  for_chunks(device, n, kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float gradient = g[i] * gradient_scale;
      const float mean = momentum * static_cast<float>(m[i]) + gradient;
      m[i] = static_cast<Moment>(mean);
      u[i] = gradient + momentum * mean;
    }
  });
}

/// Divides by the Frobenius norm, after which no singular value exceeds 1.
void normalize(DeviceContext& device, const Tensor& x) {
  const double norm = std::sqrt(ops::sum_of_squares(device, x));
  const auto factor = static_cast<float>(1.0 / (norm + 1e-7));
  float* values = x.data<float>();
  for_chunks(device, x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) values[i] *= factor;
  });
}

/// gram = a I + b gram + c square, all [k, k].
void make_polynomial(DeviceContext& device, const Tensor& gram, const Tensor& square) {
  const std::int64_t k = gram.size(0);
  float* g = gram.data<float>();
  const float* s = square.data<float>();
  for_chunks(device, k, std::max<std::int64_t>(1, kChunk / k),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin * k; i < end * k; ++i) g[i] = kB * g[i] + kC * s[i];
               for (std::int64_t row = begin; row < end; ++row) g[row * k + row] += kA;
             });
}

/// Newton-Schulz iteration X <- (a I + b A + c A^2) X with A = X X^T, from the shorter side.
/// Returns the one of `x` and `other` that holds the result.
Tensor orthogonalize(DeviceContext& device, Tensor x, Tensor other) {
  normalize(device, x);
  const bool tall = x.size(0) > x.size(1);
  const std::int64_t k = std::min(x.size(0), x.size(1));
  const Tensor gram = device.empty({k, k}, DType::f32, Category::workspace);
  const Tensor square = device.empty({k, k}, DType::f32, Category::workspace);
  for (int i = 0; i < kIterations; ++i) {
    ops::matmul(device, x, tall ? Trans::yes : Trans::no, x, tall ? Trans::no : Trans::yes, gram);
    ops::matmul(device, gram, Trans::no, gram, Trans::no, square);
    make_polynomial(device, gram, square);
    if (tall) {
      ops::matmul(device, x, Trans::no, gram, Trans::no, other);
    } else {
      ops::matmul(device, gram, Trans::no, x, Trans::no, other);
    }
    std::swap(x, other);
  }
  return x;
}

/// w = w * decay - step * o, and the bf16 copy; w and low are views [rows, cols] of a matrix.
void descend(DeviceContext& device, const Tensor& w, const Tensor& low, const Tensor& o,
             float decay, float step) {
  const std::int64_t cols = w.size(1);
  for_chunks(device, w.size(0), std::max<std::int64_t>(1, kChunk / cols),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin; row < end; ++row) {
                 float* to = w.data<float>() + row * w.stride(0);
                 const float* direction = o.data<float>() + row * cols;
                 for (std::int64_t i = 0; i < cols; ++i)
                   to[i] = to[i] * decay - step * direction[i];
                 if (!low) continue;
                 bf16* rounded = low.data<bf16>() + row * low.stride(0);
                 for (std::int64_t i = 0; i < cols; ++i) rounded[i] = static_cast<bf16>(to[i]);
               }
             });
}

class MuonOptimizer final : public Optimizer {
 public:
  explicit MuonOptimizer(const OptimizerConfig& config) : config_(config) {}

  std::string_view name() const override { return "muon"; }
  std::vector<std::string> moment_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void step(DeviceContext& device, const FlatState& state,
            const StepScalars& scalars) const override {
    check(device, state, 2);
    if (device.device().is_meta()) return;
    const AdamW rule(scalars.lr, config_.beta1, config_.beta2, config_.eps, scalars.gradient_scale,
                     scalars.step);
    flat_pass(device, state, rule, decay_factor(scalars.lr, config_.weight_decay),
              /*skip_matrices=*/true);
    for (const Segment& segment : state.segments) {
      if (segment.matrix && segment.numel > 0) step_matrix(device, state, segment, scalars);
    }
  }

 private:
  void step_matrix(DeviceContext& device, const FlatState& state, const Segment& segment,
                   const StepScalars& scalars) const {
    const Shape shape = {segment.rows, segment.cols};
    ENGINE_ASSERT(segment.numel == shape.numel() &&
                      (segment.section_dim == 0 || segment.section_dim == 1) &&
                      segment.sections >= 1 && shape[segment.section_dim] % segment.sections == 0,
                  "Muon needs whole matrices: got {} elements of {} in {} sections along {}",
                  segment.numel, shape.str(), segment.sections, segment.section_dim);
    const auto matrix = [&](const Tensor& flat) {
      return flat.slice(0, segment.begin, segment.begin + segment.numel).view(shape);
    };
    const Tensor update = device.empty(shape, DType::f32, Category::workspace);
    const auto advance = [&]<class Moment>(Moment* moment) {
      nesterov(device, state.gradient.data<float>() + segment.begin, moment + segment.begin,
               update.data<float>(), segment.numel, static_cast<float>(config_.momentum),
               static_cast<float>(scalars.gradient_scale));
    };
    if (state.moments[0].dtype() == DType::bf16) {
      advance(state.moments[0].data<bf16>());
    } else {
      advance(state.moments[0].data<float>());
    }
    const Tensor master = matrix(state.master);
    const Tensor low = state.low_precision ? matrix(state.low_precision) : Tensor();

    Shape part = shape;
    part[segment.section_dim] /= segment.sections;
    const double size = std::sqrt(static_cast<double>(std::max(part[0], part[1])));
    const auto step = static_cast<float>(scalars.lr * 0.2 * size);
    const float decay = segment.decay ? decay_factor(scalars.lr, config_.weight_decay) : 1.0F;
    const Tensor x = device.empty(part, DType::f32, Category::workspace);
    const Tensor other = device.empty(part, DType::f32, Category::workspace);
    for (int i = 0; i < segment.sections; ++i) {
      const auto section = [&](const Tensor& whole) {
        const std::int64_t length = part[segment.section_dim];
        return whole.slice(segment.section_dim, i * length, (i + 1) * length);
      };
      ops::copy(device, section(update), x);
      const Tensor direction = orthogonalize(device, x, other);
      descend(device, section(master), low ? section(low) : Tensor(), direction, decay, step);
    }
  }

  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config) {
  return std::make_unique<MuonOptimizer>(config);
}

}  // namespace engine::optim::detail

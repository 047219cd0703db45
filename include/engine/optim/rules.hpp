#pragma once
// Update rules for one element. Scalars are computed on the host in double and narrowed once, so
// every device and layout works with the same numbers.
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define ENGINE_HD __host__ __device__
#else
#define ENGINE_HD
#endif

namespace engine::optim {

/// Adam with decoupled weight decay: w *= decay; m, v are running means of g and g^2;
/// w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
struct AdamW {
  static constexpr int kMoments = 2;

  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;       ///< lr / (1 - beta1^t)
  float inverse_root_2;  ///< 1 / sqrt(1 - beta2^t)
  float eps;

  /// `step` counts from 1.
  AdamW(double lr, double b1, double b2, double epsilon, double scale, std::int64_t step)
      : gradient_scale(static_cast<float>(scale)),
        beta1(static_cast<float>(b1)),
        one_minus_beta1(static_cast<float>(1.0 - b1)),
        beta2(static_cast<float>(b2)),
        one_minus_beta2(static_cast<float>(1.0 - b2)),
        step_size(static_cast<float>(lr / (1.0 - std::pow(b1, static_cast<double>(step))))),
        inverse_root_2(
            static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(b2, static_cast<double>(step))))),
        eps(static_cast<float>(epsilon)) {}

  ENGINE_HD void operator()(float& w, float g, float& m, float& v, float decay) const {
    g *= gradient_scale;
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * (g * g);
    w = w * decay - step_size * (m / (std::sqrt(v) * inverse_root_2 + eps));
  }
};

/// Stochastic gradient descent with momentum: v = momentum * v + g; w = w * decay - lr * v.
/// Decay is decoupled here as in the other rules (its default for SGD is 0).
struct Sgd {
  static constexpr int kMoments = 1;

  float gradient_scale, momentum, lr;

  Sgd(double rate, double mu, double scale)
      : gradient_scale(static_cast<float>(scale)),
        momentum(static_cast<float>(mu)),
        lr(static_cast<float>(rate)) {}

  ENGINE_HD void operator()(float& w, float g, float& v, float decay) const {
    v = momentum * v + g * gradient_scale;
    w = w * decay - lr * v;
  }
};

/// Lion: u = sign(beta1 * m + (1 - beta1) * g); w = w * decay - lr * u;
/// m = beta2 * m + (1 - beta2) * g. The sign of zero is zero.
/// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
struct Lion {
  static constexpr int kMoments = 1;

  float gradient_scale, lr, beta1, one_minus_beta1, beta2, one_minus_beta2;

  Lion(double rate, double b1, double b2, double scale)
      : gradient_scale(static_cast<float>(scale)),
        lr(static_cast<float>(rate)),
        beta1(static_cast<float>(b1)),
        one_minus_beta1(static_cast<float>(1.0 - b1)),
        beta2(static_cast<float>(b2)),
        one_minus_beta2(static_cast<float>(1.0 - b2)) {}

  ENGINE_HD void operator()(float& w, float g, float& m, float decay) const {
    g *= gradient_scale;
    const float direction = beta1 * m + one_minus_beta1 * g;
    const float sign = static_cast<float>(direction > 0.0F) - static_cast<float>(direction < 0.0F);
    w = w * decay - lr * sign;
    m = beta2 * m + one_minus_beta2 * g;
  }
};

/// Factor of decoupled weight decay, 1 - lr * weight_decay.
inline float decay_factor(double lr, double weight_decay) {
  return static_cast<float>(1.0 - lr * weight_decay);
}

}  // namespace engine::optim

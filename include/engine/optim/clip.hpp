#pragma once

namespace engine::optim {

/// Factor that clips gradients of global norm `norm` to `max_norm` (0: off).
constexpr double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0;
}

}  // namespace engine::optim

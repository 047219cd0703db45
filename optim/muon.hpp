#pragma once
#include <memory>

#include "engine/optim/optimizer.hpp"

namespace engine::optim::detail {

/// Muon: hidden matrices step along their orthogonalised momentum, all else by AdamW.
/// Momentum is Nesterov's (m = momentum * m + g; u = g + momentum * m); five quintic Newton-Schulz
/// iterations in f32 take u to nearly the closest matrix O with orthonormal rows or columns; then
/// w = w * decay - lr * 0.2 * sqrt(max(rows, cols)) * O. That factor gives updates the size of
/// AdamW's, so both kinds of parameters share one learning rate and decay. Sections of a fused
/// matrix are orthogonalised apart. The first moment of a matrix is its momentum, its second is
/// unused and stays as it is. Workspace: 3 matrices and twice the square of the shorter side.
/// Source: Jordan et al., "Muon: An optimizer for hidden layers", 2024 (iteration, coefficients);
/// Liu et al., "Muon is Scalable for LLM Training", 2025 (the factor).
std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config);

}  // namespace engine::optim::detail

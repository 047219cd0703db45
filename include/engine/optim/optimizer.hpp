#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/device_context.hpp"
#include "engine/core/tensor.hpp"

namespace engine::optim {

/// A parameter, or the part of one that lies in a shard: elements [begin, begin + numel) of a flat
/// state.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t numel = 0;
  bool decay = false;     ///< weight decay applies
  bool matrix = false;    ///< Muon orthogonalises it: a hidden weight, here whole, [rows, cols]
  std::int64_t rows = 0;  ///< of a matrix
  std::int64_t cols = 0;
  int sections = 1;     ///< weights fused in the matrix (QKV: 3), of equal size
  int section_dim = 0;  ///< the dimension along which they lie, 0 or 1
};

/// What an optimizer step reads and writes. Shapes: all [n], contiguous, on one device.
struct FlatState {
  Tensor master;                     ///< f32
  Tensor gradient;                   ///< f32; read only
  std::vector<Tensor> moments = {};  ///< all f32 or all bf16, in the order of `moment_names`
  Tensor low_precision = {};         ///< optional bf16 copy of master, written in the same pass
  /// Ascending and disjoint; what they leave out is padding.
  std::span<const Segment> segments = {};
};

/// Numbers that change from step to step.
struct StepScalars {
  double lr = 0;
  double gradient_scale = 1;  ///< multiplies every gradient: clipping, loss scale
  std::int64_t step = 1;      ///< counts from 1
};

/// An update rule over flat states. Stateless: moments live in the caller's tensors, zero at first.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// As in `optimizer.name`.
  virtual std::string_view name() const = 0;
  /// Names of the moment tensors, one [n] tensor each; also their names in checkpoints.
  virtual std::vector<std::string> moment_names() const = 0;
  /// Updates master, moments and low_precision inside the segments; padding is left as it is.
  /// Element-wise rules give the same bits for any cut of a parameter into segments and states and
  /// for any thread count. bf16 moments are rounded to nearest, so a second moment stalls once its
  /// change falls below 2^-9 of it.
  /// Async: complete on return (CPU).
  /// Throws Errc::internal on tensors that do not fit.
  virtual void step(DeviceContext& device, const FlatState& state,
                    const StepScalars& scalars) const = 0;
};

/// The `[optimizer]` table without the learning rate.
struct OptimizerConfig {
  std::string name = "adamw";  ///< adamw | sgd | lion | muon
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.9;  ///< sgd, muon
  double weight_decay = 0.1;
};

/// Weight decay of an optimizer when the config names none: 0 for sgd, else 0.1.
constexpr double default_weight_decay(std::string_view name) noexcept {
  return name == "sgd" ? 0.0 : 0.1;
}

/// Makes the optimizer. Muon orthogonalises whole matrices and treats all else like AdamW, under
/// one learning rate (optim/muon.hpp says how). Throws Errc::invalid_argument naming the key of a
/// value that is wrong.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config);

}  // namespace engine::optim

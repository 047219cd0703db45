#include "engine/ops/cross_entropy.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {
namespace {

void check_arguments(std::string_view op, const Tensor& logits, const Tensor& targets,
                     const Tensor& loss) {
  check::rank(op, "logits", logits, 2);
  check::real(op, "logits", logits);
  check::contiguous(op, "logits", logits);
  ENGINE_ASSERT(logits.size(1) > 0, "{}: logits: expected columns, got shape {}", op,
                logits.shape().str());
  check::tensor(op, "targets", targets, Shape{logits.size(0)}, DType::i32);
  check::tensor(op, "loss", loss, Shape{logits.size(0)}, DType::f32);
}

}  // namespace

void cross_entropy(DeviceContext& device, const Tensor& logits, const Tensor& targets,
                   const Tensor& loss) {
  check_arguments("cross_entropy", logits, targets, loss);
  if (loss.is_meta()) return;
  device.kernels()->cross_entropy(device, logits, targets, loss);
}

void cross_entropy_with_gradient(DeviceContext& device, const Tensor& logits, const Tensor& targets,
                                 double grad_scale, const Tensor& loss) {
  check_arguments("cross_entropy_with_gradient", logits, targets, loss);
  if (loss.is_meta()) return;
  device.kernels()->cross_entropy_with_gradient(device, logits, targets, grad_scale, loss);
}

}  // namespace engine::ops

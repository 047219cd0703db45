#include "engine/ops/norm.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {
namespace {

/// Checks x and weight, returns the number of rows.
std::int64_t check_input(std::string_view op, const Tensor& x, const Tensor& weight) {
  check::real(op, "x", x);
  check::contiguous(op, "x", x);
  ENGINE_ASSERT(x.rank() >= 1 && x.size(-1) > 0, "{}: x: expected a last dimension, got shape {}",
                op, x.shape().str());
  check::tensor(op, "weight", weight, Shape{x.size(-1)}, x.dtype());
  return x.numel() / x.size(-1);
}

}  // namespace

void layer_norm(DeviceContext& device, const Tensor& x, const Tensor& weight, const Tensor& bias,
                double eps, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const std::int64_t rows = check_input("layer_norm", x, weight);
  check::tensor("layer_norm", "bias", bias, weight.shape(), x.dtype());
  check::tensor("layer_norm", "y", y, x.shape(), x.dtype());
  check::tensor("layer_norm", "mean", mean, Shape{rows}, DType::f32);
  check::tensor("layer_norm", "rstd", rstd, Shape{rows}, DType::f32);
  if (y.is_meta()) return;
  device.kernels()->layer_norm(device, x, weight, bias, eps, y, mean, rstd);
}

void layer_norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const Tensor& dx, Write write_dx, const Tensor& dweight,
                         const Tensor& dbias, Write write_parameters) {
  const std::int64_t rows = check_input("layer_norm_backward", x, weight);
  check::tensor("layer_norm_backward", "dy", dy, x.shape(), x.dtype());
  check::tensor("layer_norm_backward", "mean", mean, Shape{rows}, DType::f32);
  check::tensor("layer_norm_backward", "rstd", rstd, Shape{rows}, DType::f32);
  check::tensor("layer_norm_backward", "dx", dx, x.shape(), x.dtype());
  check::tensor("layer_norm_backward", "dweight", dweight, weight.shape(), DType::f32);
  check::tensor("layer_norm_backward", "dbias", dbias, weight.shape(), DType::f32);
  if (dx.is_meta()) return;
  device.kernels()->layer_norm_backward(device, dy, x, weight, mean, rstd, dx, write_dx, dweight,
                                        dbias, write_parameters);
}

void rms_norm(DeviceContext& device, const Tensor& x, const Tensor& weight, double eps,
              const Tensor& y, const Tensor& rstd) {
  const std::int64_t rows = check_input("rms_norm", x, weight);
  check::tensor("rms_norm", "y", y, x.shape(), x.dtype());
  check::tensor("rms_norm", "rstd", rstd, Shape{rows}, DType::f32);
  if (y.is_meta()) return;
  device.kernels()->rms_norm(device, x, weight, eps, y, rstd);
}

void rms_norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, const Tensor& dx, Write write_dx,
                       const Tensor& dweight, Write write_parameters) {
  const std::int64_t rows = check_input("rms_norm_backward", x, weight);
  check::tensor("rms_norm_backward", "dy", dy, x.shape(), x.dtype());
  check::tensor("rms_norm_backward", "rstd", rstd, Shape{rows}, DType::f32);
  check::tensor("rms_norm_backward", "dx", dx, x.shape(), x.dtype());
  check::tensor("rms_norm_backward", "dweight", dweight, weight.shape(), DType::f32);
  if (dx.is_meta()) return;
  device.kernels()->rms_norm_backward(device, dy, x, weight, rstd, dx, write_dx, dweight,
                                      write_parameters);
}

}  // namespace engine::ops

#include "engine/ops/activation.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {
namespace {

void check_input(std::string_view op, std::string_view argument, const Tensor& x) {
  check::real(op, argument, x);
  check::contiguous(op, argument, x);
}

}  // namespace

void gelu(DeviceContext& device, const Tensor& x, const Tensor& y) {
  check_input("gelu", "x", x);
  check::tensor("gelu", "y", y, x.shape(), x.dtype());
  if (y.is_meta()) return;
  device.kernels()->gelu(device, x, y);
}

void gelu_backward(DeviceContext& device, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_input("gelu_backward", "x", x);
  check::tensor("gelu_backward", "dy", dy, x.shape(), x.dtype());
  check::tensor("gelu_backward", "dx", dx, x.shape(), x.dtype());
  if (dx.is_meta()) return;
  device.kernels()->gelu_backward(device, x, dy, dx);
}

void swiglu(DeviceContext& device, const Tensor& gate, const Tensor& up, const Tensor& y) {
  check_input("swiglu", "gate", gate);
  check::tensor("swiglu", "up", up, gate.shape(), gate.dtype());
  check::tensor("swiglu", "y", y, gate.shape(), gate.dtype());
  if (y.is_meta()) return;
  device.kernels()->swiglu(device, gate, up, y);
}

void swiglu_backward(DeviceContext& device, const Tensor& gate, const Tensor& up, const Tensor& dy,
                     const Tensor& dgate, const Tensor& dup) {
  check_input("swiglu_backward", "gate", gate);
  check::tensor("swiglu_backward", "up", up, gate.shape(), gate.dtype());
  check::tensor("swiglu_backward", "dy", dy, gate.shape(), gate.dtype());
  check::tensor("swiglu_backward", "dgate", dgate, gate.shape(), gate.dtype());
  check::tensor("swiglu_backward", "dup", dup, gate.shape(), gate.dtype());
  if (dgate.is_meta()) return;
  device.kernels()->swiglu_backward(device, gate, up, dy, dgate, dup);
}

}  // namespace engine::ops

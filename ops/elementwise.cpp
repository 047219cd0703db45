#include "engine/ops/elementwise.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {

void add(DeviceContext& device, const Tensor& a, const Tensor& b, const Tensor& y) {
  check::real("add", "y", y);
  check::contiguous("add", "y", y);
  check::tensor("add", "a", a, y.shape(), y.dtype());
  const bool short_b = y.dtype() == DType::f32 && b && b.dtype() == DType::bf16;
  check::tensor("add", "b", b, y.shape(), short_b ? DType::bf16 : y.dtype());
  if (y.is_meta()) return;
  device.kernels()->add(device, a, b, y);
}

void copy(DeviceContext& device, const Tensor& x, const Tensor& y) {
  check::shape("copy", "y", y, x.shape());
  const auto rows = [](const Tensor& t) {
    return t.contiguous() || (t.rank() > 0 && (t.size(-1) <= 1 || t.stride(-1) == 1));
  };
  ENGINE_ASSERT(rows(x) && rows(y), "copy: expected contiguous last dimensions, got shape {}",
                x.shape().str());
  if (x.dtype() != y.dtype()) {
    check::real("copy", "x", x);
    check::real("copy", "y", y);
  }
  if (y.is_meta()) return;
  device.kernels()->copy(device, x, y);
}

void fill(DeviceContext& device, const Tensor& x, float value) {
  check::real("fill", "x", x);
  check::contiguous("fill", "x", x);
  if (x.is_meta()) return;
  device.kernels()->fill(device, x, value);
}

void dropout(DeviceContext& device, const Tensor& x, const Dropout& dropout, const Tensor& y) {
  check::real("dropout", "x", x);
  check::contiguous("dropout", "x", x);
  check::tensor("dropout", "y", y, x.shape(), x.dtype());
  ENGINE_ASSERT(x.rank() >= 1, "dropout: x: expected a batch dimension, got shape {}",
                x.shape().str());
  if (y.is_meta()) return;
  if (dropout.active()) {
    device.kernels()->dropout(device, x, dropout, y);
  } else if (x.raw() != y.raw()) {
    device.kernels()->copy(device, x, y);
  }
}

void sum_rows(DeviceContext& device, const Tensor& x, const Tensor& sum, Write write) {
  check::rank("sum_rows", "x", x, 2);
  check::real("sum_rows", "x", x);
  check::contiguous("sum_rows", "x", x);
  check::tensor("sum_rows", "sum", sum, Shape{x.size(1)}, DType::f32);
  if (sum.is_meta()) return;
  device.kernels()->sum_rows(device, x, sum, write);
}

double sum(DeviceContext& device, const Tensor& x) {
  check::tensor("sum", "x", x, x.shape(), DType::f32);
  return x.is_meta() ? 0 : device.kernels()->sum(device, x);
}

double sum_of_squares(DeviceContext& device, const Tensor& x) {
  check::tensor("sum_of_squares", "x", x, x.shape(), DType::f32);
  return x.is_meta() ? 0 : device.kernels()->sum_of_squares(device, x);
}

}  // namespace engine::ops

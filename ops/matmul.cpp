#include "engine/ops/matmul.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {
namespace {

void check_rows(std::string_view argument, const Tensor& x) {
  check::rank("matmul", argument, x, 2);
  ENGINE_ASSERT(x.size(1) <= 1 || x.stride(1) == 1,
                "matmul: {}: expected contiguous columns, got stride {} in shape {}", argument,
                x.stride(1), x.shape().str());
  ENGINE_ASSERT(x.size(0) <= 1 || x.stride(0) >= x.size(1),
                "matmul: {}: expected rows that do not overlap, got stride {} in shape {}",
                argument, x.stride(0), x.shape().str());
}

}  // namespace

void matmul(DeviceContext& device, const Tensor& a, Trans trans_a, const Tensor& b, Trans trans_b,
            const Tensor& c, Write write, const Tensor& bias) {
  check_rows("a", a);
  check_rows("b", b);
  check_rows("c", c);
  const bool flip_a = trans_a == Trans::yes;
  const bool flip_b = trans_b == Trans::yes;
  const std::int64_t m = a.size(flip_a ? 1 : 0);
  const std::int64_t k = a.size(flip_a ? 0 : 1);
  const std::int64_t n = b.size(flip_b ? 0 : 1);
  check::shape("matmul", "b", b, flip_b ? Shape{n, k} : Shape{k, n});
  check::shape("matmul", "c", c, Shape{m, n});
  check::real("matmul", "a", a);
  check::dtype("matmul", "b", b, a.dtype());
  check::real("matmul", "c", c);
  ENGINE_ASSERT(c.dtype() == DType::f32 || a.dtype() == DType::bf16,
                "matmul: c: expected type f32 for f32 operands, got {}", name(c.dtype()));
  if (bias) {
    check::shape("matmul", "bias", bias, Shape{n});
    check::contiguous("matmul", "bias", bias);
    ENGINE_ASSERT(
        bias.dtype() == DType::f32 || bias.dtype() == c.dtype() || bias.dtype() == b.dtype(),
        "matmul: bias: expected type f32, {} or {}, got {}", name(c.dtype()), name(b.dtype()),
        name(bias.dtype()));
  }
  device.counters().matmul_flops +=
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (c.is_meta()) return;
  device.kernels()->matmul(device, a, trans_a, b, trans_b, c, write, bias);
}

}  // namespace engine::ops

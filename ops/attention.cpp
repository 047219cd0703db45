#include "engine/ops/attention.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {
namespace {

void check_heads(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check::rank(op, "q", q, 4);
  check::rank(op, "k", k, 4);
  check::real(op, "q", q);
  check::heads(op, "q", q, q.shape(), q.dtype());
  const Shape kv{q.size(0), k.size(1), k.size(2), q.size(3)};
  check::heads(op, "k", k, kv, q.dtype());
  check::heads(op, "v", v, kv, q.dtype());
  ENGINE_ASSERT(k.size(2) > 0 && q.size(2) % k.size(2) == 0,
                "{}: expected a multiple of the {} kv heads, got {} query heads", op, k.size(2),
                q.size(2));
  ENGINE_ASSERT(k.size(1) >= q.size(1), "{}: expected {} keys or more, got {}", op, q.size(1),
                k.size(1));
}

/// FLOPs of one matrix product over the pairs of query and key that the causal mask leaves.
double flops_per_product(const Tensor& q, const Tensor& k) {
  const auto queries = static_cast<double>(q.size(1));
  const double earlier = static_cast<double>(k.size(1)) - queries;
  const double pairs = queries * earlier + queries * (queries + 1) / 2;
  return 2 * pairs * static_cast<double>(q.size(0) * q.size(2) * q.size(3));
}

}  // namespace

void attention(DeviceContext& device, const Tensor& q, const Tensor& k, const Tensor& v,
               double scale, const Dropout& dropout, const Tensor& out, const Tensor& log_sum_exp) {
  check_heads("attention", q, k, v);
  check::heads("attention", "out", out, q.shape(), q.dtype());
  check::tensor("attention", "log_sum_exp", log_sum_exp, Shape{q.size(0), q.size(2), q.size(1)},
                DType::f32);
  device.counters().matmul_flops += 2 * flops_per_product(q, k);
  if (out.is_meta()) return;
  device.kernels()->attention(device, q, k, v, scale, dropout, out, log_sum_exp);
}

void attention_backward(DeviceContext& device, const Tensor& dout, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& log_sum_exp, double scale,
                        const Dropout& dropout, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv) {
  constexpr std::string_view kOp = "attention_backward";
  check_heads(kOp, q, k, v);
  ENGINE_ASSERT(q.size(1) == k.size(1), "{}: expected {} keys, got {}", kOp, q.size(1), k.size(1));
  check::heads(kOp, "dout", dout, q.shape(), q.dtype());
  check::heads(kOp, "out", out, q.shape(), q.dtype());
  check::tensor(kOp, "log_sum_exp", log_sum_exp, Shape{q.size(0), q.size(2), q.size(1)},
                DType::f32);
  check::heads(kOp, "dq", dq, q.shape(), q.dtype());
  check::heads(kOp, "dk", dk, k.shape(), q.dtype());
  check::heads(kOp, "dv", dv, v.shape(), q.dtype());
  device.counters().matmul_flops += 5 * flops_per_product(q, k);
  if (dq.is_meta()) return;
  device.kernels()->attention_backward(device, dout, q, k, v, out, log_sum_exp, scale, dropout, dq,
                                       dk, dv);
}

}  // namespace engine::ops

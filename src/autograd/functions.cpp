#include "engine/autograd/functions.hpp"

#include <algorithm>
#include <cmath>

#include "engine/ops/activation.hpp"
#include "engine/ops/attention.hpp"
#include "engine/ops/elementwise.hpp"
#include "engine/ops/embedding.hpp"
#include "engine/ops/matmul.hpp"
#include "engine/ops/norm.hpp"
#include "engine/ops/rope.hpp"

namespace engine::autograd {
namespace {

using ops::Trans;

Tensor activation(Tape& tape, const Shape& shape, DType dtype) {
  return tape.device().empty(shape, dtype, Category::activations);
}

Shape with_last(const Shape& shape, std::int64_t size) {
  Shape result = shape;
  result[-1] = size;
  return result;
}

Tensor rows_of(const Tensor& x) { return x.view({x.numel() / x.size(-1), x.size(-1)}); }

/// Writes a gradient that its op can only overwrite: straight into an empty slot, else by way of a
/// temporary that is added.
template <class Fill>
void write_gradient(const BackwardScope& scope, int k, Fill&& fill) {
  const BackwardScope::Slot slot = scope.dx(k);
  if (slot.write == ops::Write::overwrite) {
    fill(slot.view);
    return;
  }
  const Tensor part =
      scope.device().empty(slot.view.shape(), slot.view.dtype(), Category::activations);
  fill(part);
  ops::add(scope.device(), slot.view, part, slot.view);
}

}  // namespace

Value linear(Tape& tape, const Value& x, Parameter& weight, Parameter* bias, WeightLayout layout) {
  const bool in_out = layout == WeightLayout::in_out;
  const std::int64_t in = weight.shape()[in_out ? 0 : 1];
  const std::int64_t out = weight.shape()[in_out ? 1 : 0];
  ENGINE_ASSERT(x.tensor.size(-1) == in, "linear {}: input of {} features, weight takes {}",
                weight.name(), x.tensor.size(-1), in);
  const Tensor y = activation(tape, with_last(x.tensor.shape(), out), x.tensor.dtype());
  ops::matmul(tape.device(), rows_of(x.tensor), Trans::no, weight.value(),
              in_out ? Trans::no : Trans::yes, rows_of(y), ops::Write::overwrite,
              bias != nullptr ? bias->value() : Tensor{});
  return tape.record(y, {&x, 1}, true,
                     [input = x.tensor, &weight, bias, in_out](const BackwardScope& scope) {
                       DeviceContext& device = scope.device();
                       const Tensor dy = rows_of(scope.dy());
                       if (scope.needs(0)) {
                         const auto [dx, write] = scope.dx(0);
                         ops::matmul(device, dy, Trans::no, weight.value(),
                                     in_out ? Trans::yes : Trans::no, rows_of(dx), write);
                       }
                       if (bias != nullptr) {
                         const auto [db, write] = bias->grad_write();
                         ops::sum_rows(device, dy, db, write);
                       }
                       scope.weights([&device, dy, rows = rows_of(input), &weight, in_out] {
                         const auto [dw, write] = weight.grad_write();
                         if (in_out) {
                           ops::matmul(device, rows, Trans::yes, dy, Trans::no, dw, write);
                         } else {
                           ops::matmul(device, dy, Trans::yes, rows, Trans::no, dw, write);
                         }
                       });
                     });
}

Value embedding(Tape& tape, const Tensor& tokens, Parameter& table, Parameter* positions,
                std::int64_t first_position) {
  const Tensor y =
      activation(tape, {tokens.size(0), tokens.size(1), table.shape()[1]}, table.value().dtype());
  ops::embedding(tape.device(), tokens, table.value(),
                 positions != nullptr ? positions->value() : Tensor{}, first_position, y);
  return tape.record(y, {}, true, [tokens, &table, positions](const BackwardScope& scope) {
    const auto [dtable, write] = table.grad_write();
    ops::embedding_backward(scope.device(), tokens, scope.dy(), dtable, write);
    if (positions != nullptr) {
      const auto [dpositions, write_positions] = positions->grad_write();
      ops::position_embedding_backward(scope.device(), scope.dy(), dpositions, write_positions);
    }
  });
}

Value layer_norm(Tape& tape, const Value& x, Parameter& weight, Parameter& bias, double eps) {
  const std::int64_t rows = x.tensor.numel() / x.tensor.size(-1);
  const Tensor y = activation(tape, x.tensor.shape(), x.tensor.dtype());
  const Tensor mean = activation(tape, {rows}, DType::f32);
  const Tensor rstd = activation(tape, {rows}, DType::f32);
  ops::layer_norm(tape.device(), x.tensor, weight.value(), bias.value(), eps, y, mean, rstd);
  return tape.record(
      y, {&x, 1}, true, [input = x.tensor, mean, rstd, &weight, &bias](const BackwardScope& scope) {
        const auto [dx, write] = scope.dx(0);
        const auto [dweight, write_parameters] = weight.grad_write();
        const auto [dbias, write_bias] = bias.grad_write();
        ENGINE_ASSERT(write_parameters == write_bias, "weight and bias of {} are used together",
                      weight.name());
        ops::layer_norm_backward(scope.device(), scope.dy(), input, weight.value(), mean, rstd, dx,
                                 write, dweight, dbias, write_parameters);
      });
}

Value rms_norm(Tape& tape, const Value& x, Parameter& weight, double eps) {
  const std::int64_t rows = x.tensor.numel() / x.tensor.size(-1);
  const Tensor y = activation(tape, x.tensor.shape(), x.tensor.dtype());
  const Tensor rstd = activation(tape, {rows}, DType::f32);
  ops::rms_norm(tape.device(), x.tensor, weight.value(), eps, y, rstd);
  return tape.record(y, {&x, 1}, true,
                     [input = x.tensor, rstd, &weight](const BackwardScope& scope) {
                       const auto [dx, write] = scope.dx(0);
                       const auto [dweight, write_weight] = weight.grad_write();
                       ops::rms_norm_backward(scope.device(), scope.dy(), input, weight.value(),
                                              rstd, dx, write, dweight, write_weight);
                     });
}

Value gelu(Tape& tape, const Value& x) {
  const Tensor y = activation(tape, x.tensor.shape(), x.tensor.dtype());
  ops::gelu(tape.device(), x.tensor, y);
  return tape.record(y, {&x, 1}, false, [input = x.tensor](const BackwardScope& scope) {
    write_gradient(scope, 0, [&](const Tensor& dx) {
      ops::gelu_backward(scope.device(), input, scope.dy(), dx);
    });
  });
}

Value swiglu(Tape& tape, const Value& gate, const Value& up) {
  const Tensor y = activation(tape, gate.tensor.shape(), gate.tensor.dtype());
  ops::swiglu(tape.device(), gate.tensor, up.tensor, y);
  const Value inputs[] = {gate, up};
  return tape.record(
      y, inputs, false, [gate = gate.tensor, up = up.tensor](const BackwardScope& scope) {
        DeviceContext& device = scope.device();
        const Tensor dgate = device.empty(gate.shape(), gate.dtype(), Category::activations);
        const Tensor dup = device.empty(up.shape(), up.dtype(), Category::activations);
        ops::swiglu_backward(device, gate, up, scope.dy(), dgate, dup);
        if (scope.needs(0)) scope.pass(0, dgate);
        if (scope.needs(1)) scope.pass(1, dup);
      });
}

Value add(Tape& tape, const Value& a, const Value& b) {
  const Tensor y = activation(tape, a.tensor.shape(), a.tensor.dtype());
  ops::add(tape.device(), a.tensor, b.tensor, y);
  const Value inputs[] = {a, b};
  return tape.record(y, inputs, false, [](const BackwardScope& scope) {
    if (scope.needs(0)) scope.pass(0, scope.dy());
    if (scope.needs(1)) scope.pass(1, scope.dy());
  });
}

Value dropout(Tape& tape, const Value& x, const ops::Dropout& mask) {
  if (!mask.active()) return x;
  const Tensor y = activation(tape, x.tensor.shape(), x.tensor.dtype());
  ops::dropout(tape.device(), x.tensor, mask, y);
  return tape.record(y, {&x, 1}, false, [mask](const BackwardScope& scope) {
    write_gradient(scope, 0,
                   [&](const Tensor& dx) { ops::dropout(scope.device(), scope.dy(), mask, dx); });
  });
}

Value rope(Tape& tape, const Value& x, std::int64_t head_dim, double theta,
           std::int64_t first_position) {
  const Tensor y = activation(tape, x.tensor.shape(), x.tensor.dtype());
  ops::rope(tape.device(), x.tensor.unflatten(-1, head_dim), theta, first_position, false,
            y.unflatten(-1, head_dim));
  return tape.record(y, {&x, 1}, false, [=](const BackwardScope& scope) {
    write_gradient(scope, 0, [&](const Tensor& dx) {
      ops::rope(scope.device(), scope.dy().unflatten(-1, head_dim), theta, first_position, true,
                dx.unflatten(-1, head_dim));
    });
  });
}

namespace {

/// Runs the attention op on [B,T,H*D] views and returns output and row statistics.
std::pair<Tensor, Tensor> attend(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionShape& shape, const ops::Dropout& dropout) {
  const std::int64_t d = shape.head_dim;
  const Tensor out = activation(tape, {q.size(0), q.size(1), shape.heads * d}, q.dtype());
  const Tensor lse = activation(tape, {q.size(0), shape.heads, q.size(1)}, DType::f32);
  ops::attention(tape.device(), q.unflatten(-1, d), k.unflatten(-1, d), v.unflatten(-1, d),
                 1.0 / std::sqrt(static_cast<double>(d)), dropout, out.unflatten(-1, d), lse);
  return {out, lse};
}

void attend_backward(DeviceContext& device, const Tensor& dout, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor& out, const Tensor& lse, std::int64_t d,
                     const ops::Dropout& dropout, const Tensor& dq, const Tensor& dk,
                     const Tensor& dv) {
  ops::attention_backward(device, dout.unflatten(-1, d), q.unflatten(-1, d), k.unflatten(-1, d),
                          v.unflatten(-1, d), out.unflatten(-1, d), lse,
                          1.0 / std::sqrt(static_cast<double>(d)), dropout, dq.unflatten(-1, d),
                          dk.unflatten(-1, d), dv.unflatten(-1, d));
}

}  // namespace

Value attention(Tape& tape, const Value& q, const Value& k, const Value& v,
                const AttentionShape& shape, const ops::Dropout& dropout) {
  const auto [out, lse] = attend(tape, q.tensor, k.tensor, v.tensor, shape, dropout);
  const Value inputs[] = {q, k, v};
  return tape.record(out, inputs, false,
                     [q = q.tensor, k = k.tensor, v = v.tensor, out = out, lse = lse,
                      d = shape.head_dim, dropout](const BackwardScope& scope) {
                       DeviceContext& device = scope.device();
                       const Tensor* tensors[] = {&q, &k, &v};
                       Tensor gradients[3];
                       for (int i = 0; i < 3; ++i) {
                         gradients[i] = device.empty(tensors[i]->shape(), tensors[i]->dtype(),
                                                     Category::activations);
                       }
                       attend_backward(device, scope.dy(), q, k, v, out, lse, d, dropout,
                                       gradients[0], gradients[1], gradients[2]);
                       for (int i = 0; i < 3; ++i) {
                         if (scope.needs(i)) scope.pass(i, gradients[i]);
                       }
                     });
}

Value attention_qkv(Tape& tape, const Value& qkv, const AttentionShape& shape,
                    const ops::Dropout& dropout) {
  const std::int64_t q_end = shape.heads * shape.head_dim;
  const std::int64_t k_end = q_end + shape.kv_heads * shape.head_dim;
  const auto split = [q_end, k_end](const Tensor& t) {
    return std::array<Tensor, 3>{t.slice(-1, 0, q_end), t.slice(-1, q_end, k_end),
                                 t.slice(-1, k_end, t.size(-1))};
  };
  const auto [q, k, v] = split(qkv.tensor);
  const auto [out, lse] = attend(tape, q, k, v, shape, dropout);
  return tape.record(out, {&qkv, 1}, false,
                     [q = q, k = k, v = v, out = out, lse = lse, d = shape.head_dim, dropout,
                      split](const BackwardScope& scope) {
                       write_gradient(scope, 0, [&](const Tensor& dqkv) {
                         const auto [dq, dk, dv] = split(dqkv);
                         attend_backward(scope.device(), scope.dy(), q, k, v, out, lse, d, dropout,
                                         dq, dk, dv);
                       });
                     });
}

}  // namespace engine::autograd

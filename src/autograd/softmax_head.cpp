#include <algorithm>

#include "engine/autograd/functions.hpp"
#include "engine/ops/cross_entropy.hpp"
#include "engine/ops/elementwise.hpp"
#include "engine/ops/matmul.hpp"

namespace engine::autograd {
namespace {

/// Rows whose logits exist at one time. A multiple of this many rows costs no extra pass over W.
constexpr std::int64_t kChunkRows = 512;

}  // namespace

double softmax_cross_entropy_head(Tape& tape, const Value& x, Parameter& weight,
                                  const Tensor& targets, double grad_scale) {
  using ops::Trans;
  DeviceContext& device = tape.device();
  const std::int64_t channels = x.tensor.size(-1);
  const std::int64_t rows = x.tensor.numel() / channels;
  const std::int64_t vocab = weight.shape()[0];
  const DType dtype = x.tensor.dtype();
  const bool with_gradient = tape.recording();
  const Tensor x_rows = x.tensor.view({rows, channels});
  const Tensor target_rows = targets.view({rows});

  const Tensor loss = device.empty({rows}, DType::f32, Category::workspace);
  const Tensor logits =
      device.empty({std::min(rows, kChunkRows), vocab}, dtype, Category::workspace);
  Tensor dx;
  if (with_gradient && x.differentiable()) {
    dx = device.empty(x.tensor.shape(), dtype, Category::activations);
  }
  for (std::int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const std::int64_t end = std::min(rows, begin + kChunkRows);
    const Tensor input = x_rows.slice(0, begin, end);
    const Tensor chunk = logits.slice(0, 0, end - begin);
    const Tensor chunk_targets = target_rows.slice(0, begin, end);
    const Tensor chunk_loss = loss.slice(0, begin, end);
    ops::matmul(device, input, Trans::no, weight.value(), Trans::yes, chunk);
    if (!with_gradient) {
      ops::cross_entropy(device, chunk, chunk_targets, chunk_loss);
      continue;
    }
    ops::cross_entropy_with_gradient(device, chunk, chunk_targets, grad_scale, chunk_loss);
    if (dx) {
      ops::matmul(device, chunk, Trans::no, weight.value(), Trans::no,
                  dx.view({rows, channels}).slice(0, begin, end));
    }
    const auto [dw, write] = weight.grad_write();
    ops::matmul(device, chunk, Trans::yes, input, Trans::no, dw, write);
  }
  tape.seed(x, dx);
  return ops::sum(device, loss);
}

Tensor logits(Tape& tape, const Value& x, Parameter& weight) {
  DeviceContext& device = tape.device();
  const std::int64_t channels = x.tensor.size(-1);
  const std::int64_t rows = x.tensor.numel() / channels;
  Shape shape = x.tensor.shape();
  shape[-1] = weight.shape()[0];
  Tensor y = device.empty(shape, x.tensor.dtype(), Category::activations);
  ops::matmul(device, x.tensor.view({rows, channels}), ops::Trans::no, weight.value(),
              ops::Trans::yes, y.view({rows, shape[-1]}));
  return y;
}

}  // namespace engine::autograd

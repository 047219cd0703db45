#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/math.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

template <class T>
float largest(const T* x, Index n) {
  float result = static_cast<float>(x[0]);
#pragma omp simd reduction(max : result)
  for (Index i = 0; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    result = v > result ? v : result;
  }
  return result;
}

/// Sum of exp(x - shift): float within blocks, double across, since a vocabulary is long.
template <class T>
double sum_exp(const T* x, Index n, float shift) {
  constexpr Index kBlock = 512;
  double total = 0;
  for (Index begin = 0; begin < n; begin += kBlock) {
    const Index end = std::min(n, begin + kBlock);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Index i = begin; i < end; ++i) sum += exp(static_cast<float>(x[i]) - shift);
    total += static_cast<double>(sum);
  }
  return total;
}

template <class T>
void softmax_scaled(T* x, Index n, float shift, float scale) {
  for (Index i = 0; i < n; ++i) {
    x[i] = static_cast<T>(exp(static_cast<float>(x[i]) - shift) * scale);
  }
}

template <class T>
float row_loss(T* x, Index n, std::int32_t target, const double* grad_scale) {
  if (target < 0) {
    if (grad_scale != nullptr) std::fill_n(x, n, T{});
    return 0;
  }
  const float shift = largest(x, n);
  const double sum = sum_exp(x, n, shift);
  const double shifted =
      static_cast<double>(static_cast<float>(x[target])) - static_cast<double>(shift);
  if (grad_scale != nullptr) {
    // The target's element by itself: rounded once, also when its type is short.
    const double probability = static_cast<double>(exp(static_cast<float>(shifted))) / sum;
    softmax_scaled(x, n, shift, static_cast<float>(*grad_scale / sum));
    x[target] = static_cast<T>(static_cast<float>(*grad_scale * (probability - 1.0)));
  }
  return static_cast<float>(std::log(sum) - shifted);
}

void run(DeviceContext& device, const Tensor& logits, const Tensor& targets,
         const double* grad_scale, const Tensor& loss) {
  const Index columns = logits.size(1);
  with_type(logits.dtype(), [&]<class T>(T) {
    for_chunks(device, logits.size(0), row_grain(columns), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        loss.data<float>()[row] = row_loss(logits.data<T>() + row * columns, columns,
                                           targets.data<std::int32_t>()[row], grad_scale);
      }
    });
  });
}

}  // namespace

void cross_entropy(DeviceContext& device, const Tensor& logits, const Tensor& targets,
                   const Tensor& loss) {
  run(device, logits, targets, nullptr, loss);
}

void cross_entropy_with_gradient(DeviceContext& device, const Tensor& logits, const Tensor& targets,
                                 double grad_scale, const Tensor& loss) {
  run(device, logits, targets, &grad_scale, loss);
}

ENGINE_ISA_END

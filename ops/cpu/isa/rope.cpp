#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

/// Turns one head: pairs (i, i + half). `x` may be `y`.
template <class T>
void rotate(const T* x, const float* cosine, const float* sine, Index half, T* y) {
#pragma omp simd
  for (Index i = 0; i < half; ++i) {
    const auto a = static_cast<float>(x[i]);
    const auto b = static_cast<float>(x[i + half]);
    y[i] = static_cast<T>(a * cosine[i] - b * sine[i]);
    y[i + half] = static_cast<T>(b * cosine[i] + a * sine[i]);
  }
}

}  // namespace

void rope(DeviceContext& device, const Tensor& x, double theta, std::int64_t first_position,
          bool inverse, const Tensor& y) {
  const Index batch = x.size(0);
  const Index heads = x.size(2);
  const Index depth = x.size(3);
  const Index half = depth / 2;
  with_type(x.dtype(), [&]<class T>(T) {
    for_chunks(device, x.size(1), row_grain(batch * heads * depth), [&](Index begin, Index end) {
      Workspace workspace(device, 2 * half);
      float* const cosine = workspace.take(half);
      float* const sine = workspace.take(half);
      for (Index t = begin; t < end; ++t) {
        for (Index i = 0; i < half; ++i) {
          const double power = -2.0 * static_cast<double>(i) / static_cast<double>(depth);
          const double angle = static_cast<double>(first_position + t) * std::pow(theta, power);
          cosine[i] = static_cast<float>(std::cos(angle));
          sine[i] = static_cast<float>(inverse ? -std::sin(angle) : std::sin(angle));
        }
        for (Index b = 0; b < batch; ++b) {
          const T* const from = x.data<T>() + b * x.stride(0) + t * x.stride(1);
          T* const to = y.data<T>() + b * y.stride(0) + t * y.stride(1);
          for (Index h = 0; h < heads; ++h) {
            rotate(from + h * depth, cosine, sine, half, to + h * depth);
          }
        }
      }
    });
  });
}

ENGINE_ISA_END

#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

template <class T>
void layer_norm_row(const T* x, const T* weight, const T* bias, double eps, Index n, T* y,
                    float* mean_out, float* rstd_out) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) sum += static_cast<float>(x[i]);
  const float mean = sum / static_cast<float>(n);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (Index i = 0; i < n; ++i) {
    const float d = static_cast<float>(x[i]) - mean;
    squares += d * d;
  }
  const auto rstd = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(squares) / static_cast<double>(n) + eps));
  for (Index i = 0; i < n; ++i) {
    const float normal = (static_cast<float>(x[i]) - mean) * rstd;
    y[i] = static_cast<T>(normal * static_cast<float>(weight[i]) + static_cast<float>(bias[i]));
  }
  *mean_out = mean;
  *rstd_out = rstd;
}

template <class T>
void rms_norm_row(const T* x, const T* weight, double eps, Index n, T* y, float* rstd_out) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (Index i = 0; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    squares += v * v;
  }
  const auto rstd = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(squares) / static_cast<double>(n) + eps));
  for (Index i = 0; i < n; ++i) {
    y[i] = static_cast<T>(static_cast<float>(x[i]) * rstd * static_cast<float>(weight[i]));
  }
  *rstd_out = rstd;
}

/// What both backward passes do with a row; without a mean (root mean square), `kCentred` is false.
template <bool kCentred, class T>
void norm_backward_row(const T* dy, const T* x, const T* weight, float mean, float rstd, Index n,
                       T* dx, Write write_dx, float* dweight, float* dbias) {
  float sum = 0;
  float product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (Index i = 0; i < n; ++i) {
    const float normal = (static_cast<float>(x[i]) - mean) * rstd;
    const float d = static_cast<float>(dy[i]) * static_cast<float>(weight[i]);
    sum += d;
    product += d * normal;
  }
  const float mean_d = kCentred ? sum / static_cast<float>(n) : 0.0F;
  const float mean_product = product / static_cast<float>(n);
  for (Index i = 0; i < n; ++i) {
    const float normal = (static_cast<float>(x[i]) - mean) * rstd;
    const auto d = static_cast<float>(dy[i]);
    dweight[i] += d * normal;
    if constexpr (kCentred) dbias[i] += d;
  }
  const auto gradient = [&](Index i) {
    const float normal = (static_cast<float>(x[i]) - mean) * rstd;
    const float d = static_cast<float>(dy[i]) * static_cast<float>(weight[i]);
    return rstd * ((d - mean_d) - normal * mean_product);
  };
  if (write_dx == Write::accumulate) {
    for (Index i = 0; i < n; ++i) dx[i] = static_cast<T>(static_cast<float>(dx[i]) + gradient(i));
  } else {
    for (Index i = 0; i < n; ++i) dx[i] = static_cast<T>(gradient(i));
  }
}

template <bool kCentred>
void norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x, const Tensor& weight,
                   const float* mean, const float* rstd, const Tensor& dx, Write write_dx,
                   float* dweight, float* dbias, Write write_parameters) {
  const Index n = weight.size(0);
  const Index rows = n == 0 ? 0 : x.numel() / n;
  const RowChunks chunks = row_chunks(rows);
  const Index width = kCentred ? 2 * n : n;
  Workspace workspace(device, chunks.count * width);
  float* const partial = workspace.take(0);
  with_type(x.dtype(), [&]<class T>(T) {
    device.pool().parallel_for(chunks.count, [&](std::int64_t chunk) {
      float* const dw = partial + chunk * width;
      float* const db = kCentred ? dw + n : nullptr;
      std::fill_n(dw, width, 0.0F);
      const Index first = chunk * chunks.rows;
      for (Index row = first; row < std::min(rows, first + chunks.rows); ++row) {
        const Index at = row * n;
        norm_backward_row<kCentred>(dy.data<T>() + at, x.data<T>() + at, weight.data<T>(),
                                    kCentred ? mean[row] : 0.0F, rstd[row], n, dx.data<T>() + at,
                                    write_dx, dw, db);
      }
    });
  });
  reduce_chunks(device, partial, chunks.count, n, width, dweight, write_parameters);
  if constexpr (kCentred) {
    reduce_chunks(device, partial + n, chunks.count, n, width, dbias, write_parameters);
  }
}

}  // namespace

void layer_norm(DeviceContext& device, const Tensor& x, const Tensor& weight, const Tensor& bias,
                double eps, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const Index n = weight.size(0);
  const Index rows = n == 0 ? 0 : x.numel() / n;
  with_type(x.dtype(), [&]<class T>(T) {
    for_chunks(device, rows, row_grain(n), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        layer_norm_row(x.data<T>() + row * n, weight.data<T>(), bias.data<T>(), eps, n,
                       y.data<T>() + row * n, mean.data<float>() + row, rstd.data<float>() + row);
      }
    });
  });
}

void layer_norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const Tensor& dx, Write write_dx, const Tensor& dweight,
                         const Tensor& dbias, Write write_parameters) {
  norm_backward<true>(device, dy, x, weight, mean.data<float>(), rstd.data<float>(), dx, write_dx,
                      dweight.data<float>(), dbias.data<float>(), write_parameters);
}

void rms_norm(DeviceContext& device, const Tensor& x, const Tensor& weight, double eps,
              const Tensor& y, const Tensor& rstd) {
  const Index n = weight.size(0);
  const Index rows = n == 0 ? 0 : x.numel() / n;
  with_type(x.dtype(), [&]<class T>(T) {
    for_chunks(device, rows, row_grain(n), [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        rms_norm_row(x.data<T>() + row * n, weight.data<T>(), eps, n, y.data<T>() + row * n,
                     rstd.data<float>() + row);
      }
    });
  });
}

void rms_norm_backward(DeviceContext& device, const Tensor& dy, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, const Tensor& dx, Write write_dx,
                       const Tensor& dweight, Write write_parameters) {
  norm_backward<false>(device, dy, x, weight, nullptr, rstd.data<float>(), dx, write_dx,
                       dweight.data<float>(), nullptr, write_parameters);
}

ENGINE_ISA_END

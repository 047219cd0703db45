#include <cstring>

#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

template <class T, class B>
void add_run(const T* a, const B* b, Index n, T* y) {
  for (Index i = 0; i < n; ++i)
    y[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

template <class T>
void fill_run(T* x, Index n, float value) {
  std::fill_n(x, n, static_cast<T>(value));
}

template <class T, class B>
void add_as(DeviceContext& device, const Tensor& a, const Tensor& b, const Tensor& y) {
  for_chunks(device, y.numel(), kElementGrain, [&](Index begin, Index end) {
    add_run(a.data<T>() + begin, b.data<B>() + begin, end - begin, y.data<T>() + begin);
  });
}

/// Offset in elements of row `row` (of the last dimension) of a strided tensor.
Index row_offset(const Tensor& x, Index row) {
  Index offset = 0;
  for (int dim = x.rank() - 2; dim >= 0; --dim) {
    offset += row % x.size(dim) * x.stride(dim);
    row /= x.size(dim);
  }
  return offset;
}

/// Calls run(x offset, y offset, numel) for runs that are contiguous in both.
template <class F>
void for_runs(DeviceContext& device, const Tensor& x, const Tensor& y, const F& run) {
  if (x.contiguous() && y.contiguous()) {
    for_chunks(device, x.numel(), kElementGrain,
               [&](Index begin, Index end) { run(begin, begin, end - begin); });
    return;
  }
  const Index columns = x.size(-1);
  const Index rows = columns == 0 ? 0 : x.numel() / columns;
  for_chunks(device, rows, row_grain(columns), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) run(row_offset(x, row), row_offset(y, row), columns);
  });
}

template <class X, class Y>
void convert_as(DeviceContext& device, const Tensor& x, const Tensor& y) {
  for_runs(device, x, y, [&](Index from, Index to, Index n) {
    convert(x.data<X>() + from, n, y.data<Y>() + to);
  });
}

template <class T>
void sum_rows_run(const T* x, Index rows, Index columns, float* out) {
  std::fill_n(out, columns, 0.0F);
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < columns; ++c) out[c] += static_cast<float>(x[r * columns + c]);
  }
}

double sum_run(const float* x, Index n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (Index i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

double sum_of_squares_run(const float* x, Index n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (Index i = 0; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

/// Sums run(x, n) over fixed chunks, in order.
template <class F>
double sum_chunks(DeviceContext& device, const Tensor& x, const F& run) {
  const Index chunks = ceil_div(x.numel(), kElementGrain);
  const Tensor partial = Tensor::allocate(device.arena(), Shape{std::max<Index>(1, chunks) * 2},
                                          DType::f32, Category::workspace);
  auto* const sums = static_cast<double*>(partial.raw());
  for_chunks(device, x.numel(), kElementGrain, [&](Index begin, Index end) {
    sums[begin / kElementGrain] = run(x.data<float>() + begin, end - begin);
  });
  double total = 0;
  for (Index i = 0; i < chunks; ++i) total += sums[i];
  return total;
}

}  // namespace

void add(DeviceContext& device, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (y.dtype() == DType::bf16) {
    add_as<bf16, bf16>(device, a, b, y);
  } else if (b.dtype() == DType::bf16) {
    add_as<float, bf16>(device, a, b, y);
  } else {
    add_as<float, float>(device, a, b, y);
  }
}

void copy(DeviceContext& device, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) {
    const std::size_t size = size_of(x.dtype());
    for_runs(device, x, y, [&](Index from, Index to, Index n) {
      std::memmove(static_cast<std::byte*>(y.raw()) + static_cast<std::size_t>(to) * size,
                   static_cast<const std::byte*>(x.raw()) + static_cast<std::size_t>(from) * size,
                   static_cast<std::size_t>(n) * size);
    });
  } else if (x.dtype() == DType::bf16) {
    convert_as<bf16, float>(device, x, y);
  } else {
    convert_as<float, bf16>(device, x, y);
  }
}

void fill(DeviceContext& device, const Tensor& x, float value) {
  with_type(x.dtype(), [&]<class T>(T) {
    for_chunks(device, x.numel(), kElementGrain,
               [&](Index begin, Index end) { fill_run(x.data<T>() + begin, end - begin, value); });
  });
}

void sum_rows(DeviceContext& device, const Tensor& x, const Tensor& sum, Write write) {
  const Index rows = x.size(0);
  const Index columns = x.size(1);
  const RowChunks chunks = row_chunks(rows);
  Workspace workspace(device, chunks.count * columns);
  float* const partial = workspace.take(0);
  with_type(x.dtype(), [&]<class T>(T) {
    device.pool().parallel_for(chunks.count, [&](std::int64_t chunk) {
      const Index first = chunk * chunks.rows;
      sum_rows_run(x.data<T>() + first * columns, std::min(chunks.rows, rows - first), columns,
                   partial + chunk * columns);
    });
  });
  reduce_chunks(device, partial, chunks.count, columns, columns, sum.data<float>(), write);
}

double sum(DeviceContext& device, const Tensor& x) { return sum_chunks(device, x, sum_run); }

double sum_of_squares(DeviceContext& device, const Tensor& x) {
  return sum_chunks(device, x, sum_of_squares_run);
}

ENGINE_ISA_END

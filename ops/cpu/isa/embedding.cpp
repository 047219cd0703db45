#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

template <class T>
void add_rows(const T* a, const T* b, Index n, T* y) {
  for (Index i = 0; i < n; ++i)
    y[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

template <class T>
void accumulate(const T* x, Index n, float* sum) {
  for (Index i = 0; i < n; ++i) sum[i] += static_cast<float>(x[i]);
}

}  // namespace

void embedding(DeviceContext& device, const Tensor& tokens, const Tensor& table,
               const Tensor& positions, std::int64_t first_position, const Tensor& out) {
  const Index columns = table.size(1);
  const Index length = tokens.size(1);
  const std::int32_t* const ids = tokens.data<std::int32_t>();
  with_type(table.dtype(), [&]<class T>(T) {
    const T* const rows = table.data<T>();
    const T* const position_rows = positions ? positions.data<T>() : nullptr;
    for_chunks(device, tokens.numel(), row_grain(columns), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const T* const row = rows + ids[i] * columns;
        T* const to = out.data<T>() + i * columns;
        if (position_rows != nullptr) {
          add_rows(row, position_rows + (first_position + i % length) * columns, columns, to);
        } else {
          std::copy_n(row, columns, to);
        }
      }
    });
  });
}

void embedding_backward(DeviceContext& device, const Tensor& tokens, const Tensor& dy,
                        const Tensor& dtable, Write write) {
  constexpr Index kColumns = 64;
  const Index columns = dtable.size(1);
  float* const sums = dtable.data<float>();
  if (write == Write::overwrite) {
    for_chunks(device, dtable.numel(), 8 * kElementGrain,
               [&](Index begin, Index end) { std::fill(sums + begin, sums + end, 0.0F); });
  }
  const std::int32_t* const ids = tokens.data<std::int32_t>();
  with_type(dy.dtype(), [&]<class T>(T) {
    // Tasks own columns, so that every row is summed in token order.
    for_chunks(device, columns, kColumns, [&](Index begin, Index end) {
      for (Index i = 0; i < tokens.numel(); ++i) {
        accumulate(dy.data<T>() + i * columns + begin, end - begin,
                   sums + ids[i] * columns + begin);
      }
    });
  });
}

void position_embedding_backward(DeviceContext& device, const Tensor& dy, const Tensor& dpositions,
                                 Write write) {
  const Index batch = dy.size(0);
  const Index length = dy.size(1);
  const Index columns = dy.size(2);
  with_type(dy.dtype(), [&]<class T>(T) {
    for_chunks(device, dpositions.size(0), row_grain(columns), [&](Index begin, Index end) {
      for (Index t = begin; t < end; ++t) {
        float* const sum = dpositions.data<float>() + t * columns;
        if (write == Write::overwrite) std::fill_n(sum, columns, 0.0F);
        if (t >= length) continue;
        for (Index b = 0; b < batch; ++b) {
          accumulate(dy.data<T>() + (b * length + t) * columns, columns, sum);
        }
      }
    });
  });
}

ENGINE_ISA_END

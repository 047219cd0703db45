#include "ops/cpu/gemm.hpp"
#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

template <class T>
void add_bias(const T* bias, Index rows, Index columns, float* c, Index stride) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < columns; ++i) c[r * stride + i] += static_cast<float>(bias[i]);
  }
}

/// A matrix argument: where element (row, column) of op(x) lies.
struct Matrix {
  const Tensor* tensor;
  Trans trans;

  Index stride() const { return std::max({tensor->stride(0), tensor->size(1), Index{1}}); }
  Index offset(Index row, Index column) const {
    return trans == Trans::yes ? column * stride() + row : row * stride() + column;
  }
};

/// Row stride of a packed tile: an odd multiple of a cache line, so that its rows spread over the
/// sets of a cache.
constexpr Index packed_stride(Index columns) { return ceil_div(columns, 16) / 2 * 32 + 16; }

/// Whether the rows of an operand fall on the same cache sets. Where the sum runs across rows (a
/// transposed a, or a b as stored), the kernels of oneDNN then run at half their speed.
template <class T>
bool needs_packing(const Matrix& x, Trans across) {
  constexpr Index kPage = 4096;
  return !std::is_same_v<T, float> ||
         (x.trans == across && x.stride() * Index{sizeof(float)} % kPage == 0);
}

/// op(x)[row.., column..] of `rows` x `columns` as f32: in place, or packed into `buffer`.
template <class T>
Operand as_f32(const Matrix& x, Index row, Index column, Index rows, Index columns, Trans across,
               Workspace& buffer) {
  const T* const from = x.tensor->data<T>() + x.offset(row, column);
  if constexpr (std::is_same_v<T, float>) {
    if (!needs_packing<T>(x, across)) return {from, x.stride(), x.trans};
  }
  const Index stored_rows = x.trans == Trans::yes ? columns : rows;
  const Index stored_columns = x.trans == Trans::yes ? rows : columns;
  const Index stride = packed_stride(stored_columns);
  float* const to = buffer.take(stored_rows * stride);
  for (Index r = 0; r < stored_rows; ++r) {
    convert(from + r * x.stride(), stored_columns, to + r * stride);
  }
  return {to, stride, x.trans};
}

/// Elements that `as_f32` takes.
template <class T>
Index packed_numel(const Matrix& x, Index rows, Index columns, Trans across) {
  if (!needs_packing<T>(x, across)) return 0;
  return x.trans == Trans::yes ? columns * packed_stride(rows) : rows * packed_stride(columns);
}

/// One tile of c, whose first element is (row, column).
struct Tile {
  Index row;
  Index column;
  Index rows;
  Index columns;
  Index depth;
};

template <class In, class Out>
void multiply_tile(DeviceContext& device, const Matrix& a, const Matrix& b, const Tensor& c,
                   Write write, const Tensor& bias, const Tile& tile) {
  const Index row = tile.row;
  const Index column = tile.column;
  const Index m = tile.rows;
  const Index n = tile.columns;
  const Index k = tile.depth;
  const Index c_stride = std::max({c.stride(0), c.size(1), Index{1}});
  Out* const out = c.data<Out>() + row * c_stride + column;
  const bool add = write == Write::accumulate;
  if constexpr (std::is_same_v<In, bf16>) {
    if (native_bf16() && k > 0) {
      const Operand x{a.tensor->data<In>() + a.offset(row, 0), a.stride(), a.trans};
      const Operand y{b.tensor->data<In>() + b.offset(0, column), b.stride(), b.trans};
      Bias shift;
      if (bias) {
        shift = {static_cast<const std::byte*>(bias.raw()) +
                     static_cast<std::size_t>(column) * size_of(bias.dtype()),
                 bias.dtype()};
      }
      primitive_matmul(m, n, k, DType::bf16, x, y, c.dtype(), out, c_stride, write, shift);
      return;
    }
  }
  constexpr bool kInPlace = std::is_same_v<Out, float>;
  Workspace workspace(device, packed_numel<In>(a, m, k, Trans::yes) +
                                  packed_numel<In>(b, k, n, Trans::no) + (kInPlace ? 0 : m * n));
  float* sums = nullptr;
  Index sums_stride = n;
  if constexpr (kInPlace) {
    sums = out;
    sums_stride = c_stride;
  } else {
    sums = workspace.take(m * n);
    for (Index r = 0; add && r < m; ++r) convert(out + r * c_stride, n, sums + r * n);
  }
  if (k > 0) {
    const Operand x = as_f32<In>(a, row, 0, m, k, Trans::yes, workspace);
    const Operand y = as_f32<In>(b, 0, column, k, n, Trans::no, workspace);
    sgemm(m, n, k, 1.0F, x, y, add ? 1.0F : 0.0F, sums, sums_stride);
  } else if (!add) {
    for (Index r = 0; r < m; ++r) std::fill_n(sums + r * sums_stride, n, 0.0F);
  }
  if (bias) {
    with_type(bias.dtype(),
              [&]<class T>(T) { add_bias(bias.data<T>() + column, m, n, sums, sums_stride); });
  }
  if constexpr (!kInPlace) {
    for (Index r = 0; r < m; ++r) convert(sums + r * n, n, out + r * c_stride);
  }
}

}  // namespace

void matmul(DeviceContext& device, const Tensor& a, Trans trans_a, const Tensor& b, Trans trans_b,
            const Tensor& c, Write write, const Tensor& bias) {
  const Index m = c.size(0);
  const Index n = c.size(1);
  const Index k = a.size(trans_a == Trans::yes ? 0 : 1);
  if (m == 0 || n == 0) return;
  const Tiling tiling = tile_matmul(m, n, k);
  const Matrix left{&a, trans_a};
  const Matrix right{&b, trans_b};
  device.pool().parallel_for(tiling.tiles_m * tiling.tiles_n, [&](std::int64_t i) {
    const Index row = i / tiling.tiles_n * tiling.rows;
    const Index column = i % tiling.tiles_n * tiling.columns;
    const Tile tile{row, column, std::min(tiling.rows, m - row),
                    std::min(tiling.columns, n - column), k};
    if (a.dtype() == DType::f32) {
      multiply_tile<float, float>(device, left, right, c, write, bias, tile);
    } else if (c.dtype() == DType::f32) {
      multiply_tile<bf16, float>(device, left, right, c, write, bias, tile);
    } else {
      multiply_tile<bf16, bf16>(device, left, right, c, write, bias, tile);
    }
  });
}

ENGINE_ISA_END

#include "ops/cpu/isa/attention.hpp"

#include "ops/cpu/gemm.hpp"
#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/math.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

float largest(const float* x, Index n, float start) {
  float result = start;
#pragma omp simd reduction(max : result)
  for (Index i = 0; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

/// x = exp(x - shift); returns the sum.
float exp_run(float* x, Index n, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) {
    x[i] = exp(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

void scale_run(float* x, Index n, float factor) {
  for (Index i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
void write_row(const float* x, Index n, float divisor, T* y) {
  const float factor = 1.0F / divisor;
  for (Index i = 0; i < n; ++i) y[i] = static_cast<T>(x[i] * factor);
}

/// One query tile of one head: keys pass by in tiles, with a running maximum and sum per row.
template <class T>
void query_tile(DeviceContext& device, const Tensor& q, const Tensor& k, const Tensor& v,
                double scale, const Dropout& dropout, const Tensor& out, const Tensor& log_sum_exp,
                Index b, Index h, Index first_query) {
  const Index queries = std::min(kQueryTile, q.size(1) - first_query);
  const Index heads = q.size(2);
  const Index depth = q.size(3);
  const Index keys = k.size(1);
  const Index shift = keys - q.size(1);  // query t sees keys up to t + shift
  const Index kv_head = h / (heads / k.size(2));
  constexpr Index kConverted = std::is_same_v<T, float> ? 0 : 1;
  Workspace workspace(
      device, kQueryTile * (kKeyTile + depth) + kConverted * (kQueryTile + kKeyTile) * depth);
  float* const scores = workspace.take(kQueryTile * kKeyTile);
  float* const sums = workspace.take(kQueryTile * depth);
  float* const q_buffer = workspace.take(kConverted * kQueryTile * depth);
  float* const kv_buffer = workspace.take(kConverted * kKeyTile * depth);
  std::array<float, kQueryTile> maximum;
  std::array<float, kQueryTile> total{};
  std::array<float, kKeyTile> mask;
  maximum.fill(-std::numeric_limits<float>::infinity());

  const Rows q_rows =
      rows_as_f32(head_rows<const T>(q, b, h), first_query, queries, depth, q_buffer);
  const Index visible_keys = first_query + queries + shift;
  for (Index first = 0; first < visible_keys; first += kKeyTile) {
    const Index n = std::min(kKeyTile, visible_keys - first);
    const Rows k_rows = rows_as_f32(head_rows<const T>(k, b, kv_head), first, n, depth, kv_buffer);
    sgemm(queries, n, depth, static_cast<float>(scale), q_rows.operand(),
          k_rows.operand(Trans::yes), 0.0F, scores, kKeyTile);
    for (Index r = 0; r < queries; ++r) {
      float* const row = scores + r * kKeyTile;
      const Index query = first_query + r;
      const Index seen = std::clamp(query + shift + 1 - first, Index{0}, n);
      const auto at = static_cast<std::size_t>(r);
      const float top = largest(row, seen, maximum[at]);
      const float correction = exp(maximum[at] - top);
      total[at] = total[at] * correction + exp_run(row, seen, top);
      std::fill(row + seen, row + n, 0.0F);
      maximum[at] = top;
      if (dropout.active()) {
        dropout_mask(dropout, dropout.first_sample + b, (h * q.size(1) + query) * keys + first,
                     seen, mask.data());
        for (Index i = 0; i < seen; ++i) row[i] *= mask[static_cast<std::size_t>(i)];
      }
      if (first > 0) scale_run(sums + r * depth, depth, correction);
    }
    const Rows v_rows = rows_as_f32(head_rows<const T>(v, b, kv_head), first, n, depth, kv_buffer);
    sgemm(queries, depth, n, 1.0F, {scores, kKeyTile}, v_rows.operand(), first > 0 ? 1.0F : 0.0F,
          sums, depth);
  }
  const HeadRows<T> to = head_rows<T>(out, b, h);
  float* const lse = log_sum_exp.data<float>() + (b * heads + h) * q.size(1) + first_query;
  for (Index r = 0; r < queries; ++r) {
    const auto at = static_cast<std::size_t>(r);
    write_row(sums + r * depth, depth, total[at], to.data + (first_query + r) * to.stride);
    lse[r] = maximum[at] + std::log(total[at]);
  }
}

}  // namespace

void attention(DeviceContext& device, const Tensor& q, const Tensor& k, const Tensor& v,
               double scale, const Dropout& dropout, const Tensor& out, const Tensor& log_sum_exp) {
  const Index heads = q.size(2);
  const Index tiles = ceil_div(q.size(1), kQueryTile);
  with_type(q.dtype(), [&]<class T>(T) {
    device.pool().parallel_for(q.size(0) * heads * tiles, [&](std::int64_t task) {
      const Index tile = tiles - 1 - task % tiles;  // long ones first
      const Index head = task / tiles;
      query_tile<T>(device, q, k, v, scale, dropout, out, log_sum_exp, head / heads, head % heads,
                    tile * kQueryTile);
    });
  });
}

ENGINE_ISA_END

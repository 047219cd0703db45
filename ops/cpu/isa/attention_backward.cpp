#include "ops/cpu/isa/attention.hpp"
#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/math.hpp"

ENGINE_ISA_BEGIN
namespace {

float dot(const float* a, const float* b, Index n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// x = exp(x - shift)
void probabilities(float* x, Index n, float shift) {
  for (Index i = 0; i < n; ++i) x[i] = exp(x[i] - shift);
}

void multiply(const float* a, const float* b, Index n, float* y) {
  for (Index i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

/// d = p (d - delta)
void softmax_backward(const float* p, float delta, Index n, float* d) {
  for (Index i = 0; i < n; ++i) d[i] = p[i] * (d[i] - delta);
}

/// f32 rows that sums go to.
struct Sums {
  float* data;
  Index stride;
};

void zero_rows(Sums x, Index first, Index rows, Index depth) {
  for (Index r = first; r < first + rows; ++r) std::fill_n(x.data + r * x.stride, depth, 0.0F);
}

struct Arguments {
  const Tensor& dout;
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& out;
  const Tensor& log_sum_exp;
  float scale;
  const Dropout& dropout;
};

/// Gradients of query head h of sample b. Key tiles outside, query tiles inside: every sum has a
/// fixed order.
template <class T>
void head_backward(DeviceContext& device, const Arguments& args, Index b, Index h, Sums dq, Sums dk,
                   Sums dv) {
  const Tensor& q = args.q;
  const Index length = q.size(1);
  const Index heads = q.size(2);
  const Index depth = q.size(3);
  const Index kv_head = h / (heads / args.k.size(2));
  const bool drop = args.dropout.active();
  constexpr Index kTile = kQueryTile * kKeyTile;
  constexpr Index kConverted = std::is_same_v<T, float> ? 0 : 1;
  Workspace workspace(device, (drop ? 4 : 2) * kTile + length + kConverted * 5 * length * depth);
  float* const p = workspace.take(kTile);
  float* const d = workspace.take(kTile);
  float* const dropped = drop ? workspace.take(kTile) : p;
  float* const mask = drop ? workspace.take(kTile) : nullptr;
  float* const delta = workspace.take(length);
  const auto rows_of = [&](const Tensor& x, Index head) {
    return rows_as_f32(head_rows<const T>(x, b, head), 0, length, depth,
                       workspace.take(kConverted * length * depth));
  };
  const Rows q_rows = rows_of(q, h);
  const Rows k_rows = rows_of(args.k, kv_head);
  const Rows v_rows = rows_of(args.v, kv_head);
  const Rows dout_rows = rows_of(args.dout, h);
  const Rows out_rows = rows_of(args.out, h);
  for (Index t = 0; t < length; ++t) {
    delta[t] =
        dot(dout_rows.data + t * dout_rows.stride, out_rows.data + t * out_rows.stride, depth);
  }
  const float* const lse = args.log_sum_exp.data<float>() + (b * heads + h) * length;

  for (Index first_key = 0; first_key < length; first_key += kKeyTile) {
    const Index keys = std::min(kKeyTile, length - first_key);
    const Index start = first_key / kQueryTile * kQueryTile;
    zero_rows(dk, first_key, keys, depth);
    zero_rows(dv, first_key, keys, depth);
    for (Index first = start; first < length; first += kQueryTile) {
      const Index queries = std::min(kQueryTile, length - first);
      const Index n = std::min(keys, first + queries - first_key);
      const auto seen = [&](Index r) { return std::clamp(first + r + 1 - first_key, Index{0}, n); };
      sgemm(queries, n, depth, args.scale, q_rows.from(first), k_rows.from(first_key, Trans::yes),
            0.0F, p, kKeyTile);
      for (Index r = 0; r < queries; ++r) {
        float* const row = p + r * kKeyTile;
        probabilities(row, seen(r), lse[first + r]);
        std::fill(row + seen(r), row + n, 0.0F);
        if (drop) {
          dropout_mask(args.dropout, args.dropout.first_sample + b,
                       (h * length + first + r) * length + first_key, n, mask + r * kKeyTile);
          multiply(row, mask + r * kKeyTile, n, dropped + r * kKeyTile);
        }
      }
      sgemm(n, depth, queries, 1.0F, {dropped, kKeyTile, Trans::yes}, dout_rows.from(first), 1.0F,
            dv.data + first_key * dv.stride, dv.stride);
      sgemm(queries, n, depth, 1.0F, dout_rows.from(first), v_rows.from(first_key, Trans::yes),
            0.0F, d, kKeyTile);
      for (Index r = 0; r < queries; ++r) {
        float* const row = d + r * kKeyTile;
        if (drop) multiply(row, mask + r * kKeyTile, seen(r), row);
        softmax_backward(p + r * kKeyTile, delta[first + r], seen(r), row);
        std::fill(row + seen(r), row + n, 0.0F);
      }
      sgemm(n, depth, queries, args.scale, {d, kKeyTile, Trans::yes}, q_rows.from(first), 1.0F,
            dk.data + first_key * dk.stride, dk.stride);
      sgemm(queries, depth, n, args.scale, {d, kKeyTile}, k_rows.from(first_key),
            first_key > 0 ? 1.0F : 0.0F, dq.data + first * dq.stride, dq.stride);
    }
  }
}

/// to = sum of `count` matrices of `rows` x `columns`, in order.
template <class T>
void add_up(const float* from, Index count, Index rows, Index columns, HeadRows<T> to) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < columns; ++i) {
      float sum = 0;
      for (Index j = 0; j < count; ++j) sum += from[(j * rows + r) * columns + i];
      to.data[r * to.stride + i] = static_cast<T>(sum);
    }
  }
}

}  // namespace

void attention_backward(DeviceContext& device, const Tensor& dout, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& log_sum_exp, double scale,
                        const Dropout& dropout, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv) {
  const Index batch = q.size(0);
  const Index length = q.size(1);
  const Index heads = q.size(2);
  const Index depth = q.size(3);
  const Index kv_heads = k.size(2);
  const Index group = heads / kv_heads;
  const Index head_numel = length * depth;
  const Arguments args{dout, q, k, v, out, log_sum_exp, static_cast<float>(scale), dropout};
  with_type(q.dtype(), [&]<class T>(T) {
    // f32 sums go straight to the outputs where no other head adds to them.
    constexpr bool kInPlace = std::is_same_v<T, float>;
    const bool kv_in_place = kInPlace && group == 1;
    const Index total = batch * heads * head_numel;
    Workspace workspace(device, (kInPlace ? 0 : total) + (kv_in_place ? 0 : 2 * total));
    float* const q_sums = workspace.take(kInPlace ? 0 : total);
    float* const k_sums = workspace.take(kv_in_place ? 0 : total);
    float* const v_sums = workspace.take(kv_in_place ? 0 : total);
    device.pool().parallel_for(batch * heads, [&](std::int64_t task) {
      const Index b = task / heads;
      const Index h = task % heads;
      Sums to_q{q_sums + task * head_numel, depth};
      Sums to_k{k_sums + task * head_numel, depth};
      Sums to_v{v_sums + task * head_numel, depth};
      if constexpr (kInPlace) {
        const auto place = [&](const Tensor& x) {
          const HeadRows<float> rows = head_rows<float>(x, b, h);
          return Sums{rows.data, rows.stride};
        };
        to_q = place(dq);
        if (kv_in_place) {
          to_k = place(dk);
          to_v = place(dv);
        }
      }
      head_backward<T>(device, args, b, h, to_q, to_k, to_v);
      if constexpr (!kInPlace) add_up(to_q.data, 1, length, depth, head_rows<T>(dq, b, h));
    });
    if (kv_in_place) return;
    device.pool().parallel_for(batch * kv_heads, [&](std::int64_t task) {
      const Index b = task / kv_heads;
      const Index h = task % kv_heads;
      const Index from = task * group * head_numel;
      add_up(k_sums + from, group, length, depth, head_rows<T>(dk, b, h));
      add_up(v_sums + from, group, length, depth, head_rows<T>(dv, b, h));
    });
  });
}

ENGINE_ISA_END

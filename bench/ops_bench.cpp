// Speed of the operators beside the multiply-add peak measured in the same run.
// ENGINE_BENCH_THREADS sets the compute threads (default: all).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "engine/ops/activation.hpp"
#include "engine/ops/attention.hpp"
#include "engine/ops/cross_entropy.hpp"
#include "engine/ops/elementwise.hpp"
#include "engine/ops/matmul.hpp"
#include "engine/ops/norm.hpp"
#include "engine/ops/peak.hpp"
#include "engine/ops/table.hpp"

namespace engine::ops {
namespace {

DeviceContext& device() {
  static const std::unique_ptr<DeviceContext> context = [] {
    DeviceContext::Options options;
    const char* const threads = std::getenv("ENGINE_BENCH_THREADS");
    if (threads != nullptr) options.threads = std::atoi(threads);
    return make_device_context(options);
  }();
  return *context;
}

double peak() {
  static const double gflops = measure_peak_gflops(device());
  return gflops;
}

Tensor filled(const Shape& shape, DType dtype = DType::f32) {
  const Tensor x = device().empty(shape, dtype, Category::activations);
  fill(device(), x, 0.5F);
  return x;
}

/// Runs `work` and reports GFLOP/s with their share of the peak, and GB/s.
template <class F>
void measure(benchmark::State& state, double flops, double bytes, const F& work) {
  work();
  for (auto _ : state) work();
  using benchmark::Counter;
  const auto rate = [&](double per_run) {
    return Counter(per_run * 1e-9, Counter::kIsIterationInvariantRate);
  };
  if (flops > 0) {
    state.counters["GFLOP/s"] = rate(flops);
    state.counters["of_peak"] = rate(flops / peak());
  }
  if (bytes > 0) state.counters["GB/s"] = rate(bytes);
}

void bench_peak(benchmark::State& state) {
  double best = 0;
  for (auto _ : state) best = std::max(best, measure_peak_gflops(device()));
  state.counters["GFLOP/s"] = best;
}

/// Arguments: M, N, K, transposes of a and b, bf16.
void bench_matmul(benchmark::State& state) {
  const std::int64_t m = state.range(0);
  const std::int64_t n = state.range(1);
  const std::int64_t k = state.range(2);
  const bool flip_a = state.range(3) != 0;
  const bool flip_b = state.range(4) != 0;
  const DType dtype = state.range(5) != 0 ? DType::bf16 : DType::f32;
  const Tensor a = filled(flip_a ? Shape{k, m} : Shape{m, k}, dtype);
  const Tensor b = filled(flip_b ? Shape{n, k} : Shape{k, n}, dtype);
  const Tensor c = filled({m, n}, dtype);
  const auto size = static_cast<double>(size_of(dtype));
  measure(state, 2.0 * static_cast<double>(m * n * k),
          static_cast<double>(m * k + k * n + m * n) * size, [&] {
            matmul(device(), a, flip_a ? Trans::yes : Trans::no, b, flip_b ? Trans::yes : Trans::no,
                   c);
          });
}

void matmul_shapes(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t n : {768, 2304, 3072, 50257}) {
    bench->Args({1024, n, 768, 0, 0, 0});  // forward
    bench->Args({1024, n, 768, 0, 1, 0});  // forward, weight stored [N,K]
    bench->Args({1024, 768, n, 0, 1, 0});  // input gradient
    bench->Args({768, n, 1024, 1, 0, 0});  // weight gradient
    bench->Args({n, 768, 1024, 1, 0, 0});  // weight gradient, stored [N,K]
  }
  bench->Args({1, 2304, 768, 0, 0, 0});  // decode
  bench->Args({1, 2304, 768, 0, 1, 0});
  bench->Args({1, 50257, 768, 0, 1, 0});
  bench->Args({1024, 3072, 768, 0, 0, 1});
}

/// Arguments: B, T, H, K, D, dropout in percent.
void bench_attention(benchmark::State& state, bool backward) {
  const std::int64_t b = state.range(0);
  const std::int64_t t = state.range(1);
  const std::int64_t h = state.range(2);
  const std::int64_t d = state.range(4);
  const Tensor q = filled({b, t, h, d});
  const Tensor k = filled({b, t, state.range(3), d});
  const Tensor out = filled(q.shape());
  const Tensor lse = filled({b, h, t});
  const Tensor dq = filled(q.shape());
  const Tensor dk = filled(k.shape());
  const Tensor dv = filled(k.shape());
  const Dropout dropout{.rate = static_cast<float>(state.range(5)) / 100, .key = 1};
  const double scale = 0.125;
  attention(device(), q, k, k, scale, dropout, out, lse);
  const double flops = static_cast<double>(4 * d * h * b * t) * static_cast<double>(t + 1) / 2;
  if (backward) {
    measure(state, 2.5 * flops, 0, [&] {
      attention_backward(device(), q, q, k, k, out, lse, scale, dropout, dq, dk, dv);
    });
  } else {
    measure(state, flops, 0, [&] { attention(device(), q, k, k, scale, dropout, out, lse); });
  }
}

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kColumns = 768;
constexpr double kPassBytes = 4.0 * kRows * kColumns;  // one tensor read or written once

void bench_layer_norm(benchmark::State& state) {
  const Tensor x = filled({kRows, kColumns});
  const Tensor y = filled(x.shape());
  const Tensor weight = filled({kColumns});
  const Tensor mean = filled({kRows});
  const Tensor rstd = filled({kRows});
  measure(state, 0, 2 * kPassBytes,
          [&] { layer_norm(device(), x, weight, weight, 1e-5, y, mean, rstd); });
}

void bench_layer_norm_backward(benchmark::State& state) {
  const Tensor x = filled({kRows, kColumns});
  const Tensor dx = filled(x.shape());
  const Tensor weight = filled({kColumns});
  const Tensor dbias = filled({kColumns});
  const Tensor stats = filled({kRows});
  measure(state, 0, 3 * kPassBytes, [&] {
    layer_norm_backward(device(), x, x, weight, stats, stats, dx, Write::overwrite, weight, dbias,
                        Write::overwrite);
  });
}

void bench_gelu(benchmark::State& state) {
  const Tensor x = filled({kRows, kColumns});
  const Tensor y = filled(x.shape());
  measure(state, 0, 2 * kPassBytes, [&] { gelu(device(), x, y); });
}

void bench_gelu_backward(benchmark::State& state) {
  const Tensor x = filled({kRows, kColumns});
  const Tensor y = filled(x.shape());
  measure(state, 0, 3 * kPassBytes, [&] { gelu_backward(device(), x, x, y); });
}

void bench_dropout(benchmark::State& state) {
  const Tensor x = filled({kRows, kColumns});
  const Tensor y = filled(x.shape());
  measure(state, 0, 2 * kPassBytes, [&] { dropout(device(), x, {.rate = 0.1F, .key = 1}, y); });
}

void bench_cross_entropy(benchmark::State& state) {
  constexpr std::int64_t kTokens = 512;
  constexpr std::int64_t kVocabulary = 50257;
  const Tensor logits = filled({kTokens, kVocabulary});
  const Tensor loss = filled({kTokens});
  const Tensor targets = device().empty({kTokens}, DType::i32, Category::activations);
  std::fill_n(targets.data<std::int32_t>(), kTokens, 7);
  measure(state, 0, 2.0 * 4 * kTokens * kVocabulary,
          [&] { cross_entropy_with_gradient(device(), logits, targets, 1, loss); });
}

void attention_shapes(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t dropout : {0, 10}) bench->Args({2, 1024, 12, 12, 64, dropout});
  bench->Args({1, 1024, 12, 4, 128, 0});
}

BENCHMARK(bench_peak)->UseRealTime()->Iterations(3);
BENCHMARK(bench_matmul)->Apply(matmul_shapes)->UseRealTime();
BENCHMARK_CAPTURE(bench_attention, forward, false)->Apply(attention_shapes)->UseRealTime();
BENCHMARK_CAPTURE(bench_attention, backward, true)->Apply(attention_shapes)->UseRealTime();
BENCHMARK(bench_layer_norm)->UseRealTime();
BENCHMARK(bench_layer_norm_backward)->UseRealTime();
BENCHMARK(bench_gelu)->UseRealTime();
BENCHMARK(bench_gelu_backward)->UseRealTime();
BENCHMARK(bench_dropout)->UseRealTime();
BENCHMARK(bench_cross_entropy)->UseRealTime();

}  // namespace
}  // namespace engine::ops

BENCHMARK_MAIN();

#include "ops/cpu/gemm.hpp"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <limits>

#include "engine/core/error.hpp"

namespace engine::ops::cpu {
namespace {

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// Descriptor of op(x) [rows, columns].
dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, DType dtype,
                            std::int64_t stride, Trans trans) {
  const dnnl::memory::dims strides =
      trans == Trans::yes ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {dnnl::memory::dims{rows, columns}, type_of(dtype), strides};
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory memory_of(const dnnl::memory::desc& desc, const void* data) {
  return {desc, cpu_engine(), const_cast<void*>(data)};
}

}  // namespace

void sgemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b,
           float beta, float* c, std::int64_t c_stride) {
  omp_set_num_threads(1);  // of this thread only: tiles are the parallelism
  const dnnl_status_t status =
      dnnl_sgemm(a.trans == Trans::yes ? 'T' : 'N', b.trans == Trans::yes ? 'T' : 'N', m, n, k,
                 alpha, static_cast<const float*>(a.data), a.stride,
                 static_cast<const float*>(b.data), b.stride, beta, c, c_stride);
  ENGINE_ASSERT(status == dnnl_success, "dnnl_sgemm {}x{}x{}: status {}", m, n, k,
                static_cast<int>(status));
}

void primitive_matmul(std::int64_t m, std::int64_t n, std::int64_t k, DType in, Operand a,
                      Operand b, DType out, void* c, std::int64_t c_stride, Write write,
                      Bias bias) {
  omp_set_num_threads(1);
  try {
    const auto a_desc = describe(m, k, in, a.stride, a.trans);
    const auto b_desc = describe(k, n, in, b.stride, b.trans);
    const auto c_desc = describe(m, n, out, c_stride, Trans::no);
    const auto bias_desc =
        bias.data == nullptr ? dnnl::memory::desc() : describe(1, n, bias.dtype, n, Trans::no);
    dnnl::primitive_attr attributes;
    if (write == Write::accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0F);
      attributes.set_post_ops(post);
    }
    const auto operation = bias.data == nullptr
                               ? dnnl::matmul::desc(a_desc, b_desc, c_desc)
                               : dnnl::matmul::desc(a_desc, b_desc, bias_desc, c_desc);
    const dnnl::matmul matmul(
        dnnl::matmul::primitive_desc(operation, attributes, cpu_engine()));  // cached by oneDNN
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, memory_of(a_desc, a.data)},
        {DNNL_ARG_WEIGHTS, memory_of(b_desc, b.data)},
        {DNNL_ARG_DST, memory_of(c_desc, c)}};
    if (bias.data != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory_of(bias_desc, bias.data));
    thread_local dnnl::stream stream(cpu_engine());
    matmul.execute(stream, arguments);
    stream.wait();
  } catch (const dnnl::error& error) {
    ENGINE_FAIL(Errc::internal, "oneDNN matmul {}x{}x{} of {}: {}", m, n, k, name(in),
                error.what());
  }
}

bool native_bf16() {
  constexpr unsigned kNeeded = dnnl_cpu_isa_avx512_core_bf16;
  static const unsigned isa = dnnl_get_effective_cpu_isa();
  return (isa & kNeeded) == kNeeded;
}

Tiling tile_matmul(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMaxTiles = 16;
  constexpr std::int64_t kRowStep = 8;  // multiples of what the micro-kernels of oneDNN compute
  constexpr std::int64_t kColumnStep = 48;
  constexpr double kPacking = 12;  // of an element, in multiply-adds
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double traffic = (static_cast<double>(m) * static_cast<double>(k) +
                          static_cast<double>(k) * static_cast<double>(n)) *
                         8;
  const auto wanted = static_cast<std::int64_t>(
      std::clamp(std::max(work, traffic) / 4e6, 1.0, static_cast<double>(kMaxTiles)));
  const auto step_up = [](std::int64_t size, std::int64_t parts, std::int64_t step) {
    return ((size + parts - 1) / parts + step - 1) / step * step;
  };
  Tiling best{m, n, 1, 1};
  double best_cost = std::numeric_limits<double>::infinity();
  for (std::int64_t parts_m = 1; parts_m <= wanted; ++parts_m) {
    const std::int64_t rows = std::min(m, step_up(m, parts_m, kRowStep));
    const std::int64_t columns = std::min(n, step_up(n, wanted / parts_m, kColumnStep));
    const auto r = static_cast<double>(rows);
    const auto c = static_cast<double>(columns);
    const double cost = r * c + kPacking * (r + c);
    if (cost < best_cost) {
      best_cost = cost;
      best = {rows, columns, (m + rows - 1) / rows, (n + columns - 1) / columns};
    }
  }
  return best;
}

}  // namespace engine::ops::cpu

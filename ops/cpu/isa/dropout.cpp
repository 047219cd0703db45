#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

constexpr std::size_t kBlocks = 16;
constexpr Index kWords = kBlocks * 4;

// A vector of blocks at once, in the lower halves of 64-bit lanes; the upper halves hold leftovers.
constexpr int kLaneBytes = ENGINE_CPU_LEVEL == 4 ? 64 : (ENGINE_CPU_LEVEL == 3 ? 32 : 16);
constexpr std::size_t kLanes = kLaneBytes / 8;
using Lanes [[gnu::vector_size(kLaneBytes)]] = std::uint64_t;

/// Products of the lower halves. Compilers do not see that one instruction does this.
inline Lanes multiply(Lanes a, Lanes b) {
#if ENGINE_CPU_LEVEL == 4  // masked: the plain one makes GCC 12 warn
  return reinterpret_cast<Lanes>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif ENGINE_CPU_LEVEL == 3
  return reinterpret_cast<Lanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Lanes>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffU) * (b & 0xffffffffU);
#endif
}

/// The words of `kBlocks` consecutive blocks; philox::generate, lane by lane.
void generate(philox::Key key, std::uint64_t first_block, std::uint64_t high,
              std::array<std::uint32_t, kWords>& words) {
  constexpr std::size_t kGroups = kBlocks / kLanes;
  const Lanes m0 = Lanes{} + 0xD2511F53U;
  const Lanes m1 = Lanes{} + 0xCD9E8D57U;
  std::array<Lanes, kGroups> c0;
  std::array<Lanes, kGroups> c1;
  std::array<Lanes, kGroups> c2;
  std::array<Lanes, kGroups> c3;
  for (std::size_t g = 0; g < kGroups; ++g) {
    Lanes low{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) low[lane] = first_block + g * kLanes + lane;
    c0[g] = low;
    c1[g] = low >> 32;
    c2[g] = Lanes{} + high;
    c3[g] = c2[g] >> 32;
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Lanes x0 = Lanes{} + std::uint64_t{k0};
    const Lanes x1 = Lanes{} + std::uint64_t{k1};
#pragma GCC unroll 8
    for (std::size_t g = 0; g < kGroups; ++g) {
      const Lanes p0 = multiply(c0[g], m0);
      const Lanes p1 = multiply(c2[g], m1);
      c0[g] = (p1 >> 32) ^ c1[g] ^ x0;
      c2[g] = (p0 >> 32) ^ c3[g] ^ x1;
      c1[g] = p1;
      c3[g] = p0;
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (std::size_t g = 0; g < kGroups; ++g) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::uint32_t* const to = words.data() + 4 * (g * kLanes + lane);
      to[0] = static_cast<std::uint32_t>(c0[g][lane]);
      to[1] = static_cast<std::uint32_t>(c1[g][lane]);
      to[2] = static_cast<std::uint32_t>(c2[g][lane]);
      to[3] = static_cast<std::uint32_t>(c3[g][lane]);
    }
  }
}

template <class T>
void dropout_run(const T* x, const float* mask, Index n, T* y) {
  for (Index i = 0; i < n; ++i) y[i] = static_cast<T>(static_cast<float>(x[i]) * mask[i]);
}

}  // namespace

void dropout_mask(const Dropout& dropout, Index sample, Index first, Index n, float* mask) {
  const auto threshold =
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(dropout.rate) * 0x1p32));
  const auto kept = static_cast<float>(1.0 / (1.0 - static_cast<double>(dropout.rate)));
  std::array<std::uint32_t, kWords> words;
  for (Index at = first / 4 * 4; at < first + n; at += kWords) {
    generate(dropout.key, static_cast<std::uint64_t>(at / 4), static_cast<std::uint64_t>(sample),
             words);
    const Index begin = std::max(at, first);
    const Index end = std::min(at + kWords, first + n);
    float* const out = mask + (begin - first);
    const std::uint32_t* const from = words.data() + (begin - at);
    for (Index i = 0; i < end - begin; ++i) out[i] = from[i] < threshold ? 0.0F : kept;
  }
}

void dropout(DeviceContext& device, const Tensor& x, const Dropout& dropout, const Tensor& y) {
  constexpr Index kRun = 1024;
  const Index samples = x.size(0);
  const Index per_sample = samples == 0 ? 0 : x.numel() / samples;
  const Index chunks = ceil_div(per_sample, kElementGrain);
  with_type(x.dtype(), [&]<class T>(T) {
    device.pool().parallel_for(samples * chunks, [&](std::int64_t task) {
      const Index sample = task / chunks;
      const Index first = task % chunks * kElementGrain;
      const Index end = std::min(per_sample, first + kElementGrain);
      std::array<float, kRun> mask;
      for (Index at = first; at < end; at += kRun) {
        const Index n = std::min(kRun, end - at);
        dropout_mask(dropout, dropout.first_sample + sample, at, n, mask.data());
        const Index offset = sample * per_sample + at;
        dropout_run(x.data<T>() + offset, mask.data(), n, y.data<T>() + offset);
      }
    });
  });
}

ENGINE_ISA_END

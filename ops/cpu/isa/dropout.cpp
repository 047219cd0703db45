#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

constexpr int kBlocks = 16;
constexpr Index kWords = kBlocks * 4;
using Lanes = std::array<std::uint32_t, kBlocks>;

/// The words of `kBlocks` consecutive blocks; philox::generate, lane by lane.
void generate(philox::Key key, std::uint64_t first_block, std::uint64_t high,
              std::array<std::uint32_t, kWords>& words) {
  Lanes c0;
  Lanes c1;
  Lanes c2;
  Lanes c3;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const std::uint64_t low = first_block + i;
    c0[i] = static_cast<std::uint32_t>(low);
    c1[i] = static_cast<std::uint32_t>(low >> 32);
    c2[i] = static_cast<std::uint32_t>(high);
    c3[i] = static_cast<std::uint32_t>(high >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<std::uint32_t>(p1);
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (std::size_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
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

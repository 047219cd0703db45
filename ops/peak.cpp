#include "engine/ops/peak.hpp"

#include <algorithm>
#include <chrono>

#include "engine/ops/table.hpp"

namespace engine::ops {

double measure_peak_gflops(DeviceContext& device) {
  if (device.kernels() == nullptr) return 0;
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 10;
  constexpr std::int64_t kRounds = 100'000;  // about 2 ms
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = Clock::now();
    double flops = 0;
    device.pool().parallel_for(device.pool().threads(), [&](std::int64_t task) {
      const double done = device.kernels()->fma_loop(kRounds);
      if (task == 0) flops = done * device.pool().threads();
    });
    const std::chrono::duration<double> elapsed = Clock::now() - begin;
    best = std::max(best, flops / elapsed.count() * 1e-9);
  }
  return best;
}

}  // namespace engine::ops

#include "engine/ops/peak.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/ops/table.hpp"

namespace engine::ops {

double measure_peak_gflops(DeviceContext& device) {
  if (device.kernels() == nullptr) return 0;
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 100;
  constexpr std::int64_t kRounds = 100'000;  // about 0.2 ms
  const int threads = device.pool().threads();
  std::vector<double> rates(static_cast<std::size_t>(threads));
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    // All threads at once, but each with its own clock: a thread that waits for a busy machine
    // does not hide what the units can do.
    device.pool().parallel_for(threads, [&](std::int64_t task) {
      const auto begin = Clock::now();
      const double flops = device.kernels()->fma_loop(kRounds);
      const std::chrono::duration<double> elapsed = Clock::now() - begin;
      rates[static_cast<std::size_t>(task)] = flops / elapsed.count() * 1e-9;
    });
    for (const double rate : rates) best = std::max(best, rate * threads);
  }
  return best;
}

}  // namespace engine::ops

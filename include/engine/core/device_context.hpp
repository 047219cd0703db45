#pragma once
#include <atomic>
#include <cstdint>

#include "engine/core/arena.hpp"
#include "engine/core/device.hpp"
#include "engine/core/log.hpp"
#include "engine/core/tensor.hpp"
#include "engine/core/thread_pool.hpp"

namespace engine {

namespace ops {
class Profile;
struct Table;
}  // namespace ops

/// Work done so far, counted by the ops on every device, `meta` included.
struct Counters {
  double matmul_flops = 0;  ///< multiply-adds of matrix products and attention, times two
};

/// What ops, autograd and models see of a rank: device, memory, threads, seed, kernels, counters.
/// Make one with `ops::make_device_context`. Used by one thread at a time.
class DeviceContext {
 public:
  struct Options {
    Device device;
    int threads = 0;              ///< compute threads; 0: all CPUs of the process
    std::uint64_t seed = 0;       ///< of initial weights and dropout
    std::size_t arena_bytes = 0;  ///< address space of the arena; 0: twice the memory
    Logger logger;
  };

  DeviceContext(const Options& options, const ops::Table* kernels);

  Device device() const noexcept { return options_.device; }
  std::uint64_t seed() const noexcept { return options_.seed; }
  Arena& arena() noexcept { return arena_; }
  ThreadPool& pool() noexcept { return pool_; }
  const Logger& log() const noexcept { return options_.logger; }
  Counters& counters() noexcept { return counters_; }
  /// Kernels of the device; null on `meta`.
  const ops::Table* kernels() const noexcept { return kernels_; }

  /// The profile that is running, or null; see ops::Profile, which sets it.
  ops::Profile* profile() const noexcept { return profile_; }
  void set_profile(ops::Profile* profile, const ops::Table* kernels) noexcept {
    profile_ = profile;
    kernels_ = kernels;
  }

  /// Uninitialised tensor on this device.
  Tensor empty(const Shape& shape, DType dtype, Category category);
  /// Memory by category; on `meta` what the tensors would take.
  MemoryMeter& memory() noexcept { return arena_.meter(); }

 private:
  Options options_;
  Arena arena_;
  ThreadPool pool_;
  Counters counters_;
  const ops::Table* kernels_;
  ops::Profile* profile_ = nullptr;
};

}  // namespace engine

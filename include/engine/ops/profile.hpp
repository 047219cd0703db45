#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "engine/ops/table.hpp"

namespace engine::ops {

/// Where the time of a device's operators goes. Costs nothing while none is running.
class Profile {
 public:
  struct Entry {
    std::int64_t calls = 0;
    double ms = 0;
    double flops = 0;  ///< of matrix products and attention
    double bytes = 0;  ///< of all tensor arguments, each once
  };

  /// Starts timing every operator of `device` until this object goes; one at a time.
  explicit Profile(DeviceContext& device);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Adds work that is no operator, for example an optimizer step.
  void add(std::string_view name, double ms, double flops, double bytes);
  const std::map<std::string, Entry, std::less<>>& entries() const noexcept { return entries_; }

  /// A table for people: time a step, share of `total_ms`, GFLOP/s, GB/s; the most costly first,
  /// and what is left of `total_ms` as "other".
  std::string table(double total_ms, std::int64_t steps, double peak_gflops) const;

  /// The kernels that the timed ones call.
  const Table* kernels() const noexcept { return kernels_; }
  /// FLOPs counted since the last call: operators count theirs just before they call their kernel.
  double take_flops() noexcept;

 private:
  DeviceContext* device_;
  const Table* kernels_;
  std::unique_ptr<Table> timed_;
  double counted_flops_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace engine::ops

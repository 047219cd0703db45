#pragma once
#include "engine/core/device_context.hpp"

namespace engine::ops {

/// Measured f32 multiply-add peak of the device's threads together, in GFLOP/s: the best of several
/// runs, about 20 ms in all. 0 on `meta`.
double measure_peak_gflops(DeviceContext& device);

}  // namespace engine::ops

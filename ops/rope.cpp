#include "engine/ops/rope.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {

void rope(DeviceContext& device, const Tensor& x, double theta, std::int64_t first_position,
          bool inverse, const Tensor& y) {
  check::rank("rope", "x", x, 4);
  check::real("rope", "x", x);
  check::heads("rope", "x", x, x.shape(), x.dtype());
  check::heads("rope", "y", y, x.shape(), x.dtype());
  ENGINE_ASSERT(x.size(3) % 2 == 0, "rope: x: expected an even head size, got {}", x.size(3));
  if (y.is_meta()) return;
  device.kernels()->rope(device, x, theta, first_position, inverse, y);
}

}  // namespace engine::ops

#include "engine/ops/embedding.hpp"

#include "engine/ops/table.hpp"
#include "ops/check.hpp"

namespace engine::ops {

void embedding(DeviceContext& device, const Tensor& tokens, const Tensor& table,
               const Tensor& positions, std::int64_t first_position, const Tensor& out) {
  check::rank("embedding", "tokens", tokens, 2);
  check::tensor("embedding", "tokens", tokens, tokens.shape(), DType::i32);
  check::rank("embedding", "table", table, 2);
  check::real("embedding", "table", table);
  check::contiguous("embedding", "table", table);
  const std::int64_t columns = table.size(1);
  check::tensor("embedding", "out", out, Shape{tokens.size(0), tokens.size(1), columns},
                table.dtype());
  if (positions) {
    check::rank("embedding", "positions", positions, 2);
    check::tensor("embedding", "positions", positions, Shape{positions.size(0), columns},
                  table.dtype());
    ENGINE_ASSERT(first_position >= 0 && first_position + tokens.size(1) <= positions.size(0),
                  "embedding: positions {} to {}: the table has {}", first_position,
                  first_position + tokens.size(1), positions.size(0));
  }
  if (out.is_meta()) return;
  device.kernels()->embedding(device, tokens, table, positions, first_position, out);
}

void embedding_backward(DeviceContext& device, const Tensor& tokens, const Tensor& dy,
                        const Tensor& dtable, Write write) {
  check::rank("embedding_backward", "tokens", tokens, 2);
  check::tensor("embedding_backward", "tokens", tokens, tokens.shape(), DType::i32);
  check::rank("embedding_backward", "dtable", dtable, 2);
  check::tensor("embedding_backward", "dtable", dtable, dtable.shape(), DType::f32);
  check::real("embedding_backward", "dy", dy);
  check::tensor("embedding_backward", "dy", dy,
                Shape{tokens.size(0), tokens.size(1), dtable.size(1)}, dy.dtype());
  if (dtable.is_meta()) return;
  device.kernels()->embedding_backward(device, tokens, dy, dtable, write);
}

void position_embedding_backward(DeviceContext& device, const Tensor& dy, const Tensor& dpositions,
                                 Write write) {
  check::rank("position_embedding_backward", "dy", dy, 3);
  check::real("position_embedding_backward", "dy", dy);
  check::contiguous("position_embedding_backward", "dy", dy);
  check::rank("position_embedding_backward", "dpositions", dpositions, 2);
  check::tensor("position_embedding_backward", "dpositions", dpositions,
                Shape{dpositions.size(0), dy.size(2)}, DType::f32);
  ENGINE_ASSERT(dpositions.size(0) >= dy.size(1),
                "position_embedding_backward: expected {} positions or more, got {}", dy.size(1),
                dpositions.size(0));
  if (dpositions.is_meta()) return;
  device.kernels()->position_embedding_backward(device, dy, dpositions, write);
}

}  // namespace engine::ops

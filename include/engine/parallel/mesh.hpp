#pragma once
// Where a rank stands in the layout of a run. Pure arithmetic.
#include <string>
#include <vector>

#include "engine/core/error.hpp"

namespace engine::parallel {

/// Degrees of parallelism; data = replicas * shards.
struct MeshShape {
  int data = 1;       ///< total data-parallel degree
  int replicate = 1;  ///< hybrid sharding: copies of the sharded group
  int tensor = 1;
  int pipeline = 1;

  int shards() const noexcept { return data / replicate; }
  int size() const noexcept { return data * tensor * pipeline; }
};

/// One rank's coordinates and the groups it belongs to. Ranks are numbered with the tensor
/// coordinate fastest, then shard, replica and pipeline stage, so that the groups that talk most
/// are neighbours.
class Mesh {
 public:
  Mesh() = default;
  /// Throws Errc::invalid_argument for degrees below 1, a replicate that does not divide data, or a
  /// rank outside the mesh.
  Mesh(const MeshShape& shape, int rank) : shape_(shape), rank_(rank) {
    ENGINE_CHECK(
        shape.data >= 1 && shape.replicate >= 1 && shape.tensor >= 1 && shape.pipeline >= 1,
        Errc::invalid_argument, "mesh of data {}, replicate {}, tensor {}, pipeline {}: all >= 1",
        shape.data, shape.replicate, shape.tensor, shape.pipeline);
    ENGINE_CHECK(shape.data % shape.replicate == 0, Errc::invalid_argument,
                 "replicate = {} does not divide data = {}", shape.replicate, shape.data);
    ENGINE_CHECK(rank >= 0 && rank < shape.size(), Errc::invalid_argument,
                 "rank {} of a mesh of {}", rank, shape.size());
  }

  const MeshShape& shape() const noexcept { return shape_; }
  int rank() const noexcept { return rank_; }
  int tensor() const noexcept { return rank_ % shape_.tensor; }
  int shard() const noexcept { return rank_ / shape_.tensor % shape_.shards(); }
  int replica() const noexcept { return rank_ / stride_of_replica() % shape_.replicate; }
  int stage() const noexcept { return rank_ / (shape_.tensor * shape_.data); }
  /// Position among the ranks that see different samples: replica * shards + shard.
  int data() const noexcept { return rank_ / shape_.tensor % shape_.data; }

  /// Ranks that hold the other shards of what this rank holds.
  std::vector<int> shard_group() const {
    return line(rank_ - shard() * shape_.tensor, shape_.tensor, shape_.shards());
  }
  /// Ranks that hold the same shard.
  std::vector<int> replica_group() const {
    return line(rank_ - replica() * stride_of_replica(), stride_of_replica(), shape_.replicate);
  }

 private:
  int stride_of_replica() const noexcept { return shape_.tensor * shape_.shards(); }
  static std::vector<int> line(int first, int stride, int count) {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
    return ranks;
  }

  MeshShape shape_;
  int rank_ = 0;
};

}  // namespace engine::parallel

#pragma once
#include <memory>

#include "engine/comm/world.hpp"
#include "engine/core/device_context.hpp"
#include "engine/parallel/mesh.hpp"

namespace engine::parallel {

/// Everything a rank owns and uses: device, lanes, its place in the mesh, communicators. Ranks may
/// be threads of one process, so nothing of a run lives outside its rank's context.
class RankContext {
 public:
  struct Options {
    DeviceContext::Options device;
    MeshShape mesh;
  };

  /// One rank alone. Throws Errc::invalid_argument for a device that this build does not have.
  explicit RankContext(const Options& options);
  /// This rank of `world`, which must outlive it. Collective. Throws Errc::invalid_argument unless
  /// the mesh has as many ranks as the world.
  RankContext(const Options& options, comm::World& world);

  DeviceContext& device() noexcept { return *device_; }
  const Mesh& mesh() const noexcept { return mesh_; }
  comm::World& world() noexcept { return *world_; }
  int rank() const noexcept { return mesh_.rank(); }
  int world_size() const noexcept { return mesh_.shape().size(); }
  const Logger& log() const noexcept { return device_->log(); }

  /// Lane of gathers and reductions; a thread of its own where there are peers.
  Lane& data_lane() noexcept { return *data_lane_; }
  /// The mesh's groups on the data lane.
  comm::Communicator& shard_group() noexcept { return *shard_; }
  comm::Communicator& replica_group() noexcept { return *replica_; }
  /// All ranks, in the rank's own thread: small values between instructions.
  comm::Communicator& control() noexcept { return *control_; }
  /// Bytes this rank has sent on the wire so far.
  std::int64_t sent_bytes() const noexcept;

 private:
  RankContext(const Options& options, std::unique_ptr<comm::World> own, comm::World* world);

  std::unique_ptr<comm::World> own_world_;
  comm::World* world_;
  Mesh mesh_;
  std::unique_ptr<DeviceContext> device_;
  std::unique_ptr<Lane> data_lane_;
  std::unique_ptr<Lane> compute_lane_;
  std::unique_ptr<comm::Communicator> shard_;
  std::unique_ptr<comm::Communicator> replica_;
  std::unique_ptr<comm::Communicator> control_;
};

}  // namespace engine::parallel

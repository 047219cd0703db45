#include "engine/parallel/rank_context.hpp"

#include "engine/ops/table.hpp"

namespace engine::parallel {

RankContext::RankContext(const Options& options)
    : RankContext(options, comm::make_single_world(), nullptr) {}

RankContext::RankContext(const Options& options, comm::World& world)
    : RankContext(options, nullptr, &world) {}

RankContext::RankContext(const Options& options, std::unique_ptr<comm::World> own,
                         comm::World* world)
    : own_world_(std::move(own)),
      world_(own_world_ ? own_world_.get() : world),
      mesh_(options.mesh, world_->rank()),
      device_(ops::make_device_context(options.device)),
      compute_lane_(std::make_unique<Lane>()) {
  ENGINE_CHECK(mesh_.shape().size() == world_->size(), Errc::invalid_argument,
               "the layout has {} ranks, the world {}", mesh_.shape().size(), world_->size());
  const bool peers = world_->size() > 1 && world_->backend() != "none";
  data_lane_ =
      peers ? std::make_unique<Lane>(fmt::format("data {}", rank())) : std::make_unique<Lane>();
  const auto group = [&](std::string_view name, const std::vector<int>& members, Lane& lane) {
    return world_->group(fmt::format("{} of rank {}", name, members.front()), members, lane);
  };
  shard_ = group("shards", mesh_.shard_group(), *data_lane_);
  replica_ = group("replicas", mesh_.replica_group(), *data_lane_);
  std::vector<int> all(static_cast<std::size_t>(world_->size()));
  for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
  control_ = world_->group("control", all, *compute_lane_);
}

std::int64_t RankContext::sent_bytes() const noexcept {
  return shard_->sent_bytes() + replica_->sent_bytes() + control_->sent_bytes();
}

}  // namespace engine::parallel

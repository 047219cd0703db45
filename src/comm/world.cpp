#include "engine/comm/world.hpp"

#include <algorithm>
#include <set>

#include "engine/core/error.hpp"
#include "local_transport.hpp"

namespace engine::comm {
namespace {

/// Alone, or with imagined peers.
class LocalWorld final : public World {
 public:
  LocalWorld(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view backend() const noexcept override { return "none"; }
  void abort(const std::string& /*reason*/) noexcept override {}

 private:
  std::unique_ptr<Transport> connect(const Group& group) override {
    return detail::make_local_transport(group);
  }

  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Communicator> World::group(const std::string& name, const std::vector<int>& members,
                                           Lane& lane) {
  const std::set<int> distinct(members.begin(), members.end());
  const auto mine = std::find(members.begin(), members.end(), rank());
  ENGINE_ASSERT(mine != members.end() && distinct.size() == members.size() &&
                    *distinct.begin() >= 0 && *distinct.rbegin() < size(),
                "group {} of rank {} in a world of {}", name, rank(), size());
  Group group = {name, members, static_cast<int>(mine - members.begin())};
  auto transport = group.size() == 1 ? detail::make_local_transport(group) : connect(group);
  return std::make_unique<Communicator>(*this, std::move(group), lane, std::move(transport));
}

std::unique_ptr<World> make_single_world() { return make_meta_world(0, 1); }

std::unique_ptr<World> make_meta_world(int rank, int size) {
  ENGINE_ASSERT(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  return std::make_unique<LocalWorld>(rank, size);
}

double LinkEmulation::milliseconds(std::int64_t bytes, int steps) const noexcept {
  const double transfer =
      bandwidth_gbps > 0 ? static_cast<double>(bytes) * 8e-6 / bandwidth_gbps : 0;
  return steps * latency_us * 1e-3 + transfer;
}

}  // namespace engine::comm

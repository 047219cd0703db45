#include <map>
#include <mutex>
#include <utility>

#include "attendance.hpp"
#include "engine/comm/world.hpp"
#include "engine/core/error.hpp"
#include "thread_transport.hpp"

namespace engine::comm {
namespace {

/// Finds the meeting of a group for each of its members: who asks for a group the nth time meets
/// those who ask for it the nth time.
class MeetingPlaces {
 public:
  std::shared_ptr<detail::Meeting> find(const Group& group, const detail::Attendance& attendance,
                                        double timeout_s) {
    const std::scoped_lock lock(mutex_);
    Place& place = places_[{group.name, group.members}];
    place.visits.resize(group.members.size());
    const int nth = place.visits[static_cast<std::size_t>(group.rank)]++;
    Open& open = place.open[nth];
    if (!open.meeting) {
      open.meeting = std::make_shared<detail::Meeting>(group, attendance, timeout_s);
    }
    auto meeting = open.meeting;
    if (++open.visitors == group.size()) place.open.erase(nth);  // it is the members' own now
    return meeting;
  }

 private:
  struct Open {
    std::shared_ptr<detail::Meeting> meeting;
    int visitors = 0;
  };
  struct Place {
    std::vector<int> visits;  // of each member
    std::map<int, Open> open;
  };

  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, Place> places_;
};

struct Shared {
  Shared(int ranks, const Timeouts& limits) : size(ranks), timeouts(limits), attendance(ranks) {}

  int size;
  Timeouts timeouts;
  detail::Attendance attendance;
  MeetingPlaces places;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(Shared& shared, int rank) : shared_(&shared), rank_(rank) {}
  ~ThreadWorld() override { shared_->attendance.leave(rank_); }
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return shared_->size; }
  std::string_view backend() const noexcept override { return "thread"; }
  void abort(const std::string& reason) noexcept override {
    shared_->attendance.abort(rank_, reason);  // out of memory for the reason ends the process
  }

 private:
  std::unique_ptr<Transport> connect(const Group& group) override {
    return detail::make_thread_transport(
        group, shared_->places.find(group, shared_->attendance, shared_->timeouts.collective_s));
  }

  Shared* shared_;
  int rank_;
};

}  // namespace

struct ThreadWorlds::State {
  State(int size, const Timeouts& timeouts) : shared(size, timeouts) {}
  Shared shared;
};

ThreadWorlds::ThreadWorlds(int size, const Timeouts& timeouts) {
  ENGINE_ASSERT(size >= 1, "{} ranks", size);
  state_ = std::make_shared<State>(size, timeouts);
}

ThreadWorlds::~ThreadWorlds() = default;

std::unique_ptr<World> ThreadWorlds::join(int rank) {
  ENGINE_ASSERT(rank >= 0 && rank < state_->shared.size, "rank {} of {}", rank,
                state_->shared.size);
  return std::make_unique<ThreadWorld>(state_->shared, rank);
}

}  // namespace engine::comm

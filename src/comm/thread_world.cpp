#include <pthread.h>

#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
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

std::string what(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

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

void spawn_ranks(int size, const Timeouts& timeouts, FunctionRef<void(World&)> body,
                 const LinkEmulation& link) {
  ENGINE_ASSERT(size >= 1, "{} ranks", size);
  Shared shared(size, timeouts);
  std::mutex mutex;
  std::map<int, std::exception_ptr> errors;
  std::exception_ptr error;

  const auto run = [&](int rank) {
    pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).substr(0, 15).c_str());
    const auto world = emulate_links(std::make_unique<ThreadWorld>(shared, rank), link);
    try {
      body(*world);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      errors[rank] = std::current_exception();
      if (!error) error = errors[rank];
      world->abort(what(errors[rank]));
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  } catch (const std::system_error& failure) {
    shared.attendance.abort(static_cast<int>(threads.size()), failure.what());
  }
  const bool all_started = threads.size() == static_cast<std::size_t>(size);
  for (std::thread& thread : threads) thread.join();
  ENGINE_CHECK(all_started, Errc::invalid_argument, "cannot start {} rank threads: {}", size,
               shared.attendance.abort_reason()->reason);
  // A rank may have told its peers before it threw: they threw first, but because of it.
  if (const auto abort = shared.attendance.abort_reason(); abort && errors.contains(abort->rank)) {
    error = errors[abort->rank];
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace engine::comm

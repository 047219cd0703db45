#include <pthread.h>

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/comm/world.hpp"
#include "engine/core/error.hpp"

namespace engine::comm {
namespace {

/// Which of the ranks' exceptions is told: the first, but rather one that says what happened than
/// one that says that a peer was lost.
class RootCause {
 public:
  void add(std::exception_ptr error, bool consequence) {
    const std::scoped_lock lock(mutex_);
    if (error_ && (consequence || !consequence_)) return;
    error_ = std::move(error);
    consequence_ = consequence;
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool consequence_ = false;
};

void run_rank(int rank, FunctionRef<std::unique_ptr<World>(int)> join,
              FunctionRef<void(World&)> body, RootCause& cause) {
  pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).substr(0, 15).c_str());
  std::unique_ptr<World> world;
  const auto fail = [&](const std::string& reason, bool consequence) {
    cause.add(std::current_exception(), consequence);
    if (world) world->abort(reason);
  };
  try {
    world = join(rank);
    body(*world);
  } catch (const Error& error) {
    fail(error.what(), error.code() == Errc::peer_lost);
  } catch (const std::exception& error) {
    fail(error.what(), false);
  } catch (...) {
    fail("an exception of unknown type", false);
  }
}

}  // namespace

void spawn_ranks(int size, FunctionRef<std::unique_ptr<World>(int)> join,
                 FunctionRef<void(World&)> body) {
  ENGINE_ASSERT(size >= 1, "{} ranks", size);
  RootCause cause;
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] { run_rank(rank, join, body, cause); });
    }
  } catch (const std::system_error& error) {
    // Its peers must not wait for a rank that will never be there.
    const auto missing = static_cast<int>(threads.size());
    run_rank(
        missing, join,
        [&](World&) {
          ENGINE_FAIL(Errc::invalid_argument, "cannot start {} rank threads: {}: use fewer ranks",
                      size, error.what());
        },
        cause);
  }
  for (std::thread& thread : threads) thread.join();
  cause.rethrow();
}

void spawn_ranks(int size, const Timeouts& timeouts, FunctionRef<void(World&)> body,
                 const LinkEmulation& link) {
  ThreadWorlds worlds(size, timeouts);
  spawn_ranks(
      size, [&](int rank) { return emulate_links(worlds.join(rank), link); }, body);
}

}  // namespace engine::comm

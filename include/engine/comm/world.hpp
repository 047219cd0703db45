#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/communicator.hpp"
#include "engine/core/function_ref.hpp"

namespace engine::comm {

/// How long ranks wait for each other.
struct Timeouts {
  double collective_s = 600;  ///< from the start of a collective to its end
  double startup_s = 120;     ///< for all ranks to appear
};

/// A pretended network: every message takes latency + bytes / bandwidth on its sender's link, each
/// link carries one message at a time, and the sender's threads go on meanwhile.
struct LinkEmulation {
  double latency_us = 0;
  double bandwidth_gbps = 0;  ///< gigabits per second; 0: no limit

  bool active() const noexcept { return latency_us > 0 || bandwidth_gbps > 0; }
  /// Milliseconds of a message, or of a collective that sends `bytes` in `steps` messages.
  double milliseconds(std::int64_t bytes, int steps = 1) const noexcept;
};

/// One rank's connection to all ranks of a run.
class World {
 public:
  virtual ~World() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// As in comm.backend: "thread", "gloo"; "none" without peers.
  virtual std::string_view backend() const noexcept = 0;

  /// The communicator of `members` (world ranks, this rank among them) on `lane`. Every member must
  /// make it, with the same name and list; others need not. Names are unique among a world's
  /// groups. Blocks until all members came, where the backend needs to connect.
  std::unique_ptr<Communicator> group(const std::string& name, const std::vector<int>& members,
                                      Lane& lane);
  /// Tells all ranks that this one cannot go on: their collectives throw Errc::peer_lost, quoting
  /// `reason`, within a second. The first reason given in the world is the one that is told.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  friend class EmulatedWorld;
  virtual std::unique_ptr<Transport> connect(const Group& group) = 0;
};

/// A world of one rank.
std::unique_ptr<World> make_single_world();

/// A world of `size` ranks without memory: this rank's collectives return at once. For planning on
/// the meta device.
std::unique_ptr<World> make_meta_world(int rank, int size);

/// Ranks as threads of this process. Collectives read peers' memory directly (a single copy).
class ThreadWorlds {
 public:
  ThreadWorlds(int size, const Timeouts& timeouts);
  ~ThreadWorlds();
  ThreadWorlds(const ThreadWorlds&) = delete;
  ThreadWorlds& operator=(const ThreadWorlds&) = delete;

  /// The world as rank `rank` sees it; once for each rank. Must not outlive this object.
  std::unique_ptr<World> join(int rank);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Runs `body(world)` on `size` threads, one a rank, and returns when all have ended. A rank that
/// throws aborts the others; the exception of the rank that failed first is thrown. An active
/// `link` puts every rank behind emulate_links.
void spawn_ranks(int size, const Timeouts& timeouts, FunctionRef<void(World&)> body,
                 const LinkEmulation& link = {});

/// The same with worlds that `join(rank)` makes, on the rank's thread.
void spawn_ranks(int size, FunctionRef<std::unique_ptr<World>(int)> join,
                 FunctionRef<void(World&)> body);

/// `world` behind an emulated network.
std::unique_ptr<World> emulate_links(std::unique_ptr<World> world, const LinkEmulation& link);

}  // namespace engine::comm

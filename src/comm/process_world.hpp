#pragma once
// One rank per process: a store for meeting and for blame, Gloo for moving bytes.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/launch.hpp"
#include "meeting.hpp"
#include "store.hpp"

namespace gloo {
class Context;
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace engine::comm::detail {

/// What a process rank's transports share: the store, the monitor thread, the account of failure.
class ProcessLink {
 public:
  ProcessLink(const LaunchInfo& launch, const Timeouts& timeouts);
  /// Says goodbye and waits for the others' goodbyes, some seconds at most.
  ~ProcessLink();
  ProcessLink(const ProcessLink&) = delete;
  ProcessLink& operator=(const ProcessLink&) = delete;

  const Timeouts& timeouts() const noexcept { return timeouts_; }
  /// A Gloo context among a group's members, kept until the end of this object: a peer may still
  /// read what was sent over it.
  std::shared_ptr<gloo::Context> connect(const Group& group);

  /// What this rank enters now, for the heartbeats. Throws if the world has failed.
  void enter(const std::string& group, std::int64_t sequence, const Call& call);
  void check() const;
  /// To be called when a transfer ended badly: finds out who is to blame and throws. `what` is told
  /// if nobody is found.
  [[noreturn]] void explain(const Report& report, const std::string& what);
  void abort(const std::string& reason) noexcept;

  /// Buffers that wait, so that a failure wakes them.
  void add(gloo::transport::UnboundBuffer& buffer);
  void remove(gloo::transport::UnboundBuffer& buffer);

 private:
  struct Status {
    std::int64_t sequence = 0;
    Call call;
  };
  /// What the monitor thread is asked to tell the store.
  struct Request {
    std::function<StoreClient::Answer(StoreClient&, double)> ask;
  };

  void wait_for_all_ranks();
  void monitor();
  void learn(const StoreClient::Answer& answer);
  void fail(const WorldFailure& failure);
  std::vector<GroupStatus> statuses() const;

  int rank_;
  int size_;
  Timeouts timeouts_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::vector<std::shared_ptr<gloo::Context>> contexts_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Status> statuses_;
  std::set<gloo::transport::UnboundBuffer*> waiting_;
  std::optional<WorldFailure> failure_;
  std::atomic<bool> failed_{false};
  std::vector<Request> requests_;
  std::int64_t asked_ = 0;     // requests made, and
  std::int64_t answered_ = 0;  // answered
  bool leaving_ = false;
  std::thread thread_;
};

std::unique_ptr<Transport> make_gloo_transport(ProcessLink& link, const Group& group);

}  // namespace engine::comm::detail

#pragma once
// The meeting point of a run's processes, on rank 0: keys for rendezvous, heartbeats, and the one
// account of what went wrong that all ranks tell.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/error.hpp"
#include "socket.hpp"

namespace engine::comm::detail {

constexpr std::int64_t kStoreProtocol = 1;

enum class Request : std::int64_t {
  hello = 1,  ///< protocol version, rank, world size, whether it is the monitor's connection
  set,        ///< key, value
  get,        ///< key: answered when the key is set
  beat,       ///< a GroupStatus for each group
  report,     ///< a Report: a transfer did not end
  abort,      ///< reason
  leave,      ///< the rank is done
};

/// What a rank does in one group.
struct GroupStatus {
  std::string group;
  std::int64_t sequence = 0;
  std::string call;
};

/// A transfer of a group that did not end.
struct Report {
  std::string group;
  std::string where;          ///< for messages: the operation and the group
  std::vector<int> suspects;  ///< world ranks that it waited for
  bool timed_out = false;
};

/// What ended the run, as every rank tells it.
struct WorldFailure {
  Errc code = Errc::peer_lost;
  std::string message;
};

/// Parsed and answered by one thread; clients are never trusted.
class StoreServer {
 public:
  /// Listens at once. `late_s`: a rank that sends no heartbeat for so long has failed.
  StoreServer(int port, int world_size, double late_s);
  /// Serves until all ranks have left or heard of the failure, some seconds at most.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const noexcept { return port_; }

 private:
  struct Connection;
  struct Rank {
    bool joined = false;
    bool left = false;
    bool closed = false;
    SteadyClock::time_point last_beat = {};
    std::vector<GroupStatus> statuses;
  };

  void run();
  void accept();
  void receive(Connection& c);
  void handle(Connection& c, MessageReader message);
  void hello(Connection& c, MessageReader& message);
  void beat(Connection& c, MessageReader& message);
  void report(Connection& c, MessageReader& message);
  void answer(Connection& c, std::string_view payload);
  void send_pending(Connection& c);
  void closed(Connection& c);
  void fail(Errc code, const std::string& message);
  void watch();
  void compare_calls();
  std::string failure_message() const;
  bool silent(const Rank& rank) const;
  bool all_gone() const;

  int world_size_;
  double late_s_;
  int port_ = 0;
  Socket listener_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::string> values_;
  std::vector<Rank> ranks_;
  std::optional<WorldFailure> failure_;
  SteadyClock::time_point began_ = SteadyClock::now();
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// A rank's side: one connection for keys, one for the monitor.
class StoreClient {
 public:
  /// Connects both. Throws Errc::timeout naming the address, Errc::invalid_argument when the server
  /// refuses this rank.
  StoreClient(const std::string& host, int port, int rank, int world_size, double startup_s);

  void set(const std::string& key, std::string_view value);
  /// Waits for the key. Throws Errc::timeout when it is late.
  std::string get(const std::string& key, double timeout_s);
  std::string local_address() const { return detail::local_address(keys_.socket); }

  // Of the monitor's connection; any thread, one at a time. Each returns the failure, if there is
  // one. Throw Errc::peer_lost when the server does not answer in `timeout_s`.
  struct Answer {
    std::optional<WorldFailure> failure;
    bool all_left = false;
  };
  Answer beat(const std::vector<GroupStatus>& statuses, double timeout_s);
  Answer report(const Report& report, double timeout_s);
  Answer abort(const std::string& reason, double timeout_s);
  Answer leave(double timeout_s);

 private:
  struct Line {
    Socket socket;
    std::string buffer;
    std::mutex mutex;
  };
  static std::string ask(Line& line, const std::string& message, double timeout_s);
  Answer ask_monitor(const std::string& message, double timeout_s);

  Line keys_;
  Line monitor_;
};

}  // namespace engine::comm::detail

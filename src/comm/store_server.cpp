#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "store.hpp"

namespace engine::comm::detail {
namespace {

constexpr int kTickMs = 100;
constexpr std::size_t kMostConnections = 1 << 17;
constexpr double kLeastSilenceS = 2;  // a busy machine may hold a heartbeat up
// Longest time that the server outlives its rank.
constexpr double kFarewellS = 8;
constexpr double kFailedFarewellS = 3;

double seconds_since(SteadyClock::time_point t) {
  return std::chrono::duration<double>(SteadyClock::now() - t).count();
}

}  // namespace

struct StoreServer::Connection {
  Socket socket;
  std::string received;
  std::string to_send;
  int rank = -1;  // after hello
  bool monitor = false;
  bool broken = false;
  std::string awaited;  // key of a get that waits
};

StoreServer::StoreServer(int port, int world_size, double late_s)
    : world_size_(world_size),
      late_s_(late_s),
      listener_(listen_on(port)),
      ranks_(static_cast<std::size_t>(world_size)) {
  port_ = port_of(listener_);
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  stop_.store(true);
  thread_.join();
}

void StoreServer::run() {
  std::optional<SteadyClock::time_point> stopping;
  for (;;) {
    if (stop_.load() && !stopping) stopping = SteadyClock::now();
    const double farewell_s = failure_ ? kFailedFarewellS : kFarewellS;
    if (stopping && (all_gone() || seconds_since(*stopping) > farewell_s)) return;
    std::vector<pollfd> polled = {{listener_.fd(), POLLIN, 0}};
    for (const auto& c : connections_) {
      polled.push_back(
          {c->socket.fd(), static_cast<short>(c->to_send.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    ::poll(polled.data(), polled.size(), kTickMs);
    const std::size_t known = connections_.size();
    for (std::size_t i = 0; i < known; ++i) {
      Connection& c = *connections_[i];
      const short events = polled[i + 1].revents;
      if ((events & POLLOUT) != 0) send_pending(c);
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !c.broken) receive(c);
    }
    if ((polled[0].revents & POLLIN) != 0) accept();
    for (const auto& c : connections_) {
      if (c->broken) closed(*c);
    }
    std::erase_if(connections_, [](const auto& c) { return c->broken; });
    watch();
  }
}

bool StoreServer::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& r) {
    return !r.joined || r.left || r.closed || (failure_ && silent(r));
  });
}

void StoreServer::accept() {
  Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || connections_.size() >= kMostConnections) return;
  connections_.push_back(std::make_unique<Connection>());
  connections_.back()->socket = std::move(socket);
}

void StoreServer::receive(Connection& c) {
  char chunk[4096];
  const ssize_t n = ::recv(c.socket.fd(), chunk, sizeof chunk, 0);
  if (n <= 0) {
    c.broken = n == 0 || (errno != EAGAIN && errno != EINTR);
    return;
  }
  c.received.append(chunk, static_cast<std::size_t>(n));
  try {
    while (!c.broken) {
      const std::optional<std::string> message = take_message(c.received);
      if (!message) return;
      handle(c, MessageReader(*message));
    }
  } catch (const Error&) {  // not one of ours, or damaged
    c.broken = true;
  }
}

void StoreServer::handle(Connection& c, MessageReader message) {
  const auto request = static_cast<Request>(message.integer());
  if (c.rank < 0 && request != Request::hello) {
    c.broken = true;
    return;
  }
  switch (request) {
    case Request::hello:
      return hello(c, message);
    case Request::set: {
      const std::string key = message.string();
      values_[key] = message.string();
      for (const auto& other : connections_) {
        if (other->awaited == key) {
          other->awaited.clear();
          answer(*other, values_[key]);
        }
      }
      return answer(c, "");
    }
    case Request::get: {
      const std::string key = message.string();
      const auto found = values_.find(key);
      if (found != values_.end()) return answer(c, found->second);
      c.awaited = key;
      return;
    }
    case Request::beat:
      return beat(c, message);
    case Request::report:
      return report(c, message);
    case Request::abort:
      fail(Errc::peer_lost, fmt::format("rank {} failed: {}", c.rank, message.string()));
      return answer(c, failure_message());
    case Request::leave:
      ranks_[static_cast<std::size_t>(c.rank)].left = true;
      return answer(c, failure_message());
  }
  c.broken = true;
}

void StoreServer::hello(Connection& c, MessageReader& message) {
  const std::int64_t protocol = message.integer();
  const std::int64_t rank = message.integer();
  const std::int64_t size = message.integer();
  const bool monitor = message.integer() != 0;
  const auto refuse = [&](const std::string& why) {
    answer(c, MessageWriter().add(why).text());
    fail(Errc::invalid_argument, why);
  };
  if (protocol != kStoreProtocol) {
    return refuse(
        fmt::format("a rank speaks version {} of the store's protocol, rank 0 version {}: "
                    "start the same build everywhere",
                    protocol, kStoreProtocol));
  }
  if (size != world_size_ || rank < 0 || rank >= world_size_) {
    return refuse(
        fmt::format("a process says it is rank {} of {}, rank 0 expects {} ranks: check "
                    "RANK and WORLD_SIZE",
                    rank, size, world_size_));
  }
  Rank& known = ranks_[static_cast<std::size_t>(rank)];
  if (monitor) {
    if (known.joined) {
      return refuse(fmt::format("two processes say they are rank {}: check RANK", rank));
    }
    known.joined = true;
    known.last_beat = SteadyClock::now();
  }
  c.rank = static_cast<int>(rank);
  c.monitor = monitor;
  answer(c, MessageWriter().add("").text());
}

void StoreServer::beat(Connection& c, MessageReader& message) {
  Rank& rank = ranks_[static_cast<std::size_t>(c.rank)];
  rank.last_beat = SteadyClock::now();
  rank.statuses.clear();
  while (!message.at_end()) {
    GroupStatus status;
    status.group = message.string();
    status.sequence = message.integer();
    status.call = message.string();
    rank.statuses.push_back(std::move(status));
  }
  compare_calls();
  answer(c, failure_message());
}

/// Finds what cannot end well: members of a group that call different things, and calls that a rank
/// which has left will never join.
void StoreServer::compare_calls() {
  if (failure_) return;
  struct Seen {
    int rank;
    const GroupStatus* status;
  };
  std::map<std::string, std::vector<Seen>> groups;
  for (int r = 0; r < world_size_; ++r) {
    for (const GroupStatus& s : ranks_[static_cast<std::size_t>(r)].statuses) {
      groups[s.group].push_back({r, &s});
    }
  }
  for (const auto& [group, members] : groups) {
    for (const Seen& a : members) {
      for (const Seen& b : members) {
        const auto has_left = [&](const Seen& m) {
          return ranks_[static_cast<std::size_t>(m.rank)].left;
        };
        const std::int64_t sequence = b.status->sequence;
        if (a.status->sequence == sequence && a.status->call != b.status->call) {
          return fail(Errc::internal,
                      fmt::format("group {}, collective #{}: rank {} called {}, rank {} called {}",
                                  group, sequence, a.rank, a.status->call, b.rank, b.status->call));
        }
        if (has_left(a) && !has_left(b) && a.status->sequence < sequence) {
          return fail(Errc::peer_lost, fmt::format("rank {} has left (in {} #{} of group {})",
                                                   a.rank, b.status->call, sequence, group));
        }
      }
    }
  }
}

/// A transfer of the reporter did not end: says which of the suspects is to blame.
void StoreServer::report(Connection& c, MessageReader& message) {
  const std::string group = message.string();
  const std::string where = message.string();
  const bool timed_out = message.integer() != 0;
  std::string latest;  // all that are behind alike
  std::int64_t lowest = INT64_MAX;
  std::string last_seen;
  while (!message.at_end() && !failure_) {
    const std::int64_t r = message.integer();
    if (r < 0 || r >= world_size_ || r == c.rank) continue;
    const Rank& rank = ranks_[static_cast<std::size_t>(r)];
    if (rank.left) {
      fail(Errc::peer_lost, fmt::format("rank {} has left (in {})", r, where));
    } else if (silent(rank)) {
      fail(Errc::peer_lost,
           fmt::format(
               "rank {} has not been heard of for {:.1f} s: it is stopped, or its host hangs "
               "(in {})",
               r, seconds_since(rank.last_beat), where));
    }
    const auto status = std::find_if(rank.statuses.begin(), rank.statuses.end(),
                                     [&](const GroupStatus& s) { return s.group == group; });
    const bool known = status != rank.statuses.end();
    const std::int64_t sequence = known ? status->sequence : 0;
    if (sequence > lowest) continue;
    const std::string name = fmt::format("rank {}", r);
    latest = sequence == lowest ? fmt::format("{} and {}", latest, name) : name;
    lowest = sequence;
    last_seen = known ? fmt::format("{} #{}", status->call, sequence) : "no call of this group";
  }
  if (timed_out && !latest.empty()) {
    fail(Errc::timeout, fmt::format("{} did not enter {} for {:.1f} s (last seen in {})", latest,
                                    where, late_s_, last_seen));
  }
  answer(c, failure_message());
}

bool StoreServer::silent(const Rank& rank) const {
  return seconds_since(rank.last_beat) > std::max(kLeastSilenceS, late_s_ / 2);
}

void StoreServer::watch() {
  if (failure_) return;
  for (int r = 0; r < world_size_; ++r) {
    const Rank& rank = ranks_[static_cast<std::size_t>(r)];
    if (!rank.joined || rank.left) continue;
    const double silent_s = seconds_since(rank.last_beat);
    if (silent_s <= std::max(late_s_, kLeastSilenceS)) continue;
    return fail(
        Errc::peer_lost,
        fmt::format("rank {} has not been heard of for {:.1f} s: it is stopped, or its host "
                    "hangs",
                    r, silent_s));
  }
}

void StoreServer::closed(Connection& c) {
  if (!c.monitor) return;
  Rank& rank = ranks_[static_cast<std::size_t>(c.rank)];
  rank.closed = true;
  if (rank.left) return;
  fail(Errc::peer_lost,
       fmt::format("rank {} is gone: its process ended or its host was lost", c.rank));
}

void StoreServer::fail(Errc code, const std::string& message) {
  if (!failure_) failure_ = WorldFailure{code, message};
}

std::string StoreServer::failure_message() const {
  MessageWriter writer;
  writer.add(static_cast<std::int64_t>(
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.left || r.closed; })));
  if (failure_) writer.add(static_cast<std::int64_t>(failure_->code)).add(failure_->message);
  return writer.text();
}

void StoreServer::answer(Connection& c, std::string_view payload) {
  c.to_send += framed(payload);
  send_pending(c);
}

void StoreServer::send_pending(Connection& c) {
  while (!c.to_send.empty()) {
    const ssize_t n =
        ::send(c.socket.fd(), c.to_send.data(), c.to_send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) {
      c.broken = n < 0 && errno != EAGAIN && errno != EINTR;
      return;
    }
    c.to_send.erase(0, static_cast<std::size_t>(n));
  }
}

}  // namespace engine::comm::detail

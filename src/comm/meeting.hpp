#pragma once
// Where the threads of a group meet: each posts what it calls, and sees what the others posted.
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/communicator.hpp"

namespace engine::comm::detail {

/// What all rank threads of a process share.
class Hub {
 public:
  explicit Hub(int size) : left_(static_cast<std::size_t>(size)) {}

  void abort(int rank, const std::string& reason) noexcept;
  void leave(int rank) noexcept { left_[static_cast<std::size_t>(rank)].store(true); }
  bool has_left(int rank) const noexcept { return left_[static_cast<std::size_t>(rank)].load(); }
  /// Throws Errc::peer_lost if a rank has aborted.
  void check() const;

 private:
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
  std::vector<std::atomic<bool>> left_;
};

/// What a member calls.
struct Call {
  const char* operation = "";
  DType dtype = DType::u8;
  std::int64_t numel = 0;
  int root = -1;
  ReduceOp op = ReduceOp::sum;
  const void* input = nullptr;
  void* output = nullptr;

  bool matches(const Call& other) const noexcept;
  std::string str() const;
};

/// One group's meeting point. Members go through it in step: everyone posts, everyone works,
/// everyone is done. Waiting spins for a moment, then sleeps.
class Meeting {
 public:
  Meeting(Hub& hub, Group group, double timeout_s);

  /// Posts; returns when all members have. Throws as Transport says.
  void post(int rank, const Call& call);
  const Call& call(int rank) const { return slots_[static_cast<std::size_t>(rank)].call; }
  /// Returns when all members are done with the call.
  void finish(int rank);

  /// One message from `from` to `to`, copied by the receiver.
  void send(int from, int to, const Call& call);
  void recv(int from, int to, const Call& call);

 private:
  struct alignas(64) Slot {
    Call call;
    std::atomic<std::uint32_t> posted{0};    // number of the latest call
    std::atomic<std::uint32_t> finished{0};  // likewise
  };
  struct Gate {
    std::atomic<std::uint32_t> arrived{0};
    alignas(64) std::atomic<std::uint32_t> generation{0};
  };
  struct Channel {
    enum State : std::uint32_t { empty, posted, taken, refused };
    std::atomic<std::uint32_t> state{empty};
    Call call;
    std::uint32_t count = 0;
  };

  template <class Late>
  void pass(Gate& gate, Late&& late);
  template <class Done, class Late>
  void wait(std::atomic<std::uint32_t>& word, Done&& done, Late&& late);
  Channel& channel(int from, int to) {
    return channels_[static_cast<std::size_t>(from * group_.size() + to)];
  }
  std::string where(const Call& call, std::uint32_t number) const;
  int world_rank(int member) const { return group_.members[static_cast<std::size_t>(member)]; }

  Hub& hub_;
  Group group_;
  double timeout_s_;
  std::deque<Slot> slots_;
  Gate posts_;
  Gate finishes_;
  std::deque<Channel> channels_;
};

}  // namespace engine::comm::detail

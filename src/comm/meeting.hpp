#pragma once
// Where the members of a group meet: they show each other their pointers and wait for each other.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attendance.hpp"
#include "engine/comm/communicator.hpp"
#include "futex.hpp"

namespace engine::comm::detail {

enum class Operation : std::uint8_t {
  none,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  send,
  recv,
};
std::string_view name(Operation operation) noexcept;

/// One member's part in an operation.
struct alignas(64) Call {
  Operation operation = Operation::none;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  bool meta = false;
  int root = 0;
  std::int64_t numel = 0;  ///< of the input
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Clock::time_point entered = {};  ///< set by Meeting

  bool same_type(const Call& other) const noexcept;
  bool matches(const Call& other) const noexcept;
  std::string str() const;
};

/// Members enter a collective, read and write what all have shown, and leave together. Once all
/// have entered, nothing ends it early, so nobody's memory goes while others use it. Before that,
/// whoever gives up (timeout, abort, a member that left) closes the meeting for all: late members
/// find it closed, and so do all later calls.
class Meeting {
 public:
  Meeting(const Group& group, const Attendance& attendance, double timeout_s);

  /// Enters collective `sequence` (0, 1, ... alike on all members). Returns the members' calls once
  /// all are there. Throws as Transport does.
  std::span<const Call> enter(int rank, std::uint64_t sequence, const Call& call);
  /// Returns when all members have called it `times` times.
  void leave(std::uint32_t times);

  /// Message `sequence` between two members: the receiver copies.
  void send(int rank, int to, std::uint64_t sequence, const Call& call);
  void recv(int rank, int from, std::uint64_t sequence, const Call& call);

  /// Throws if the world was aborted.
  void check_world() const;

 private:
  struct Failure {
    Errc code = Errc::internal;
    std::string text;
  };
  /// An operation as error messages name it.
  struct Step {
    Operation operation = Operation::none;
    std::uint64_t sequence = 0;
    int peer = -1;  // of a message
  };
  struct alignas(64) Member {
    std::atomic<std::uint64_t> collectives{0};  // entered so far
    std::atomic<std::uint64_t> last_seen{0};    // sequence number and operation of its last call
  };
  struct Mailbox {
    WaitWord state;
    Call call;
  };

  std::size_t size() const noexcept { return members_.size(); }
  bool all_entered(std::uint32_t word, std::uint64_t sequence) const noexcept;
  bool closed() const noexcept;
  bool close_unless_entered(std::uint64_t sequence, const Failure& failure);
  void close_locked(const Failure& failure);
  [[noreturn]] void throw_failure(const Step& step) const;

  void begin(int rank, const Step& step);
  std::optional<Failure> lost_peer(const Step& step, const std::vector<int>& late) const;
  Failure timed_out(const Step& step, const std::vector<int>& late) const;
  std::vector<int> late_for(std::uint64_t sequence) const;
  void compare(const Step& step, std::span<const Call> calls);

  Mailbox& mailbox(int from, int to) noexcept;
  /// Waits for `peer` to change the mailbox from `pending`; `awaited` is what the peer should do.
  void await_peer(Mailbox& box, std::uint32_t pending, int peer, const Step& step,
                  const Step& awaited);

  std::string describe(const Step& step) const;
  std::string last_seen(int rank) const;
  int world_rank(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }

  Group group_;
  const Attendance* attendance_;
  double timeout_s_;
  std::vector<Member> members_;
  std::array<std::vector<Call>, 2> calls_;  // of even and of odd sequence numbers
  std::vector<Mailbox> mailboxes_;
  alignas(64) WaitWord entered_;  // twice the entries of all members, plus one when closed
  alignas(64) WaitWord left_;
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;  // set before the meeting is closed
};

}  // namespace engine::comm::detail

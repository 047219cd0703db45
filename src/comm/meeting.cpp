#include "meeting.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "copy.hpp"
#include "engine/core/error.hpp"

namespace engine::comm::detail {
namespace {

constexpr std::uint32_t kClosed = 1;  // of entered_

// States of a mailbox.
constexpr std::uint32_t kEmpty = 0;
constexpr std::uint32_t kPosted = 1;
constexpr std::uint32_t kTaking = 2;  // the receiver reads the sender's memory
constexpr std::uint32_t kBoxClosed = 3;

std::string_view name(ReduceOp op) noexcept {
  return op == ReduceOp::sum ? "sum" : op == ReduceOp::max ? "max" : "min";
}

/// Counters wrap around.
bool reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

}  // namespace

std::string_view name(Operation operation) noexcept {
  constexpr std::array<std::string_view, 9> names = {"nothing",        "all_reduce", "all_gather",
                                                     "reduce_scatter", "all_to_all", "broadcast",
                                                     "barrier",        "send",       "recv"};
  return names[static_cast<std::size_t>(operation)];
}

bool Call::same_type(const Call& other) const noexcept {
  return dtype == other.dtype && numel == other.numel && meta == other.meta;
}

bool Call::matches(const Call& other) const noexcept {
  return operation == other.operation && same_type(other) && op == other.op && root == other.root;
}

std::string Call::str() const {
  if (operation == Operation::barrier) return std::string(name(operation));
  std::string text =
      fmt::format("{} of {}{} x {}", name(operation), meta ? "meta " : "", name(dtype), numel);
  if (operation == Operation::broadcast) text += fmt::format(" from member {}", root);
  if (operation == Operation::all_reduce || operation == Operation::reduce_scatter) {
    text += fmt::format(" ({})", name(op));
  }
  return text;
}

Meeting::Meeting(const Group& group, const Attendance& attendance, double timeout_s)
    : group_(group),
      attendance_(&attendance),
      timeout_s_(timeout_s),
      members_(group.members.size()),
      mailboxes_(group.members.size() * group.members.size()) {
  for (std::vector<Call>& calls : calls_) calls.resize(size());
}

std::span<const Call> Meeting::enter(int rank, std::uint64_t sequence, const Call& call) {
  const Step step = {call.operation, sequence};
  begin(rank, step);
  const Clock::time_point since = Clock::now();
  std::vector<Call>& calls = calls_[sequence % 2];
  calls[static_cast<std::size_t>(rank)] = call;
  calls[static_cast<std::size_t>(rank)].entered = since;
  members_[static_cast<std::size_t>(rank)].collectives.store(sequence + 1,
                                                             std::memory_order_release);
  std::uint32_t word = entered_.value.load(std::memory_order_acquire);
  do {  // whoever finds it closed does not count as there, so that nobody goes on
    if ((word & kClosed) != 0) throw_failure(step);
  } while (!entered_.value.compare_exchange_weak(word, word + 2));
  if (all_entered(word + 2, sequence)) {
    entered_.wake();
  } else {
    entered_.wait(
        [&](std::uint32_t now) { return all_entered(now, sequence) || (now & kClosed) != 0; },
        [&] {
          const std::vector<int> late = late_for(sequence);
          if (late.empty()) return false;
          std::optional<Failure> failure = lost_peer(step, late);
          if (!failure && Clock::now() - since > std::chrono::duration<double>(timeout_s_)) {
            failure = timed_out(step, late);
          }
          return failure && close_unless_entered(sequence, *failure);
        });
    if (!all_entered(entered_.value.load(std::memory_order_acquire), sequence)) {
      throw_failure(step);
    }
  }
  compare(step, calls);
  return calls;
}

void Meeting::leave(std::uint32_t times) {
  const std::uint32_t target = times * static_cast<std::uint32_t>(size());
  if (reached(left_.value.fetch_add(1) + 1, target)) {
    left_.wake();
  } else {
    left_.wait([&](std::uint32_t now) { return reached(now, target); }, [] { return false; });
  }
}

void Meeting::send(int rank, int to, std::uint64_t sequence, const Call& call) {
  const Step step = {Operation::send, sequence, to};
  begin(rank, step);
  Mailbox& box = mailbox(rank, to);
  box.call = call;
  std::uint32_t state = kEmpty;
  if (!box.state.value.compare_exchange_strong(state, kPosted)) throw_failure(step);
  box.state.wake();
  await_peer(box, kPosted, to, step, {Operation::recv, sequence, rank});
  box.state.wait([](std::uint32_t now) { return now != kTaking; }, [] { return false; });
  if (box.state.value.load(std::memory_order_acquire) == kBoxClosed) throw_failure(step);
}

void Meeting::recv(int rank, int from, std::uint64_t sequence, const Call& call) {
  const Step step = {Operation::recv, sequence, from};
  begin(rank, step);
  Mailbox& box = mailbox(from, rank);
  await_peer(box, kEmpty, from, step, {Operation::send, sequence, rank});
  std::uint32_t state = kPosted;
  if (!box.state.value.compare_exchange_strong(state, kTaking)) throw_failure(step);
  const bool fits = box.call.same_type(call);
  if (!fits) {
    const std::scoped_lock lock(mutex_);
    close_locked(
        {Errc::internal, fmt::format("group {}, message #{} from rank {} to rank {}: {}, but {}",
                                     group_.name, sequence + 1, world_rank(from), world_rank(rank),
                                     box.call.str(), call.str())});
  } else if (!call.meta && call.numel > 0) {
    copy(call.output, box.call.input, static_cast<std::size_t>(call.numel) * size_of(call.dtype));
  }
  box.state.value.store(fits ? kEmpty : kBoxClosed);
  box.state.wake();
  if (!fits) throw_failure(step);
}

void Meeting::await_peer(Mailbox& box, std::uint32_t pending, int peer, const Step& step,
                         const Step& awaited) {
  const Clock::time_point since = Clock::now();
  box.state.wait([&](std::uint32_t now) { return now != pending; },
                 [&] {
                   std::optional<Failure> failure = lost_peer(step, {peer});
                   const std::chrono::duration<double> waited = Clock::now() - since;
                   if (!failure && waited.count() > timeout_s_) {
                     failure = timed_out(awaited, {peer});
                   }
                   if (!failure && !closed()) return false;
                   const std::scoped_lock lock(mutex_);
                   std::uint32_t state = pending;
                   if (!box.state.value.compare_exchange_strong(state, kBoxClosed)) return false;
                   if (failure) close_locked(*failure);
                   return true;
                 });
}

void Meeting::check_world() const {
  if (const auto failure = lost_peer({}, {})) throw Error(failure->code, failure->text);
}

void Meeting::begin(int rank, const Step& step) {
  if (attendance_->aborted() || closed()) throw_failure(step);
  members_[static_cast<std::size_t>(rank)].last_seen.store(
      (step.sequence + 1) << 8 | static_cast<std::uint64_t>(step.operation),
      std::memory_order_release);
}

bool Meeting::all_entered(std::uint32_t word, std::uint64_t sequence) const noexcept {
  return reached(word & ~kClosed, static_cast<std::uint32_t>(2 * size() * (sequence + 1)));
}

bool Meeting::closed() const noexcept {
  return (entered_.value.load(std::memory_order_acquire) & kClosed) != 0;
}

bool Meeting::close_unless_entered(std::uint64_t sequence, const Failure& failure) {
  const std::scoped_lock lock(mutex_);
  std::uint32_t word = entered_.value.load();
  do {
    if (all_entered(word, sequence)) return false;
    if ((word & kClosed) != 0) return true;
  } while (!entered_.value.compare_exchange_weak(word, word | kClosed));
  close_locked(failure);
  return true;
}

void Meeting::close_locked(const Failure& failure) {
  if (!failure_) failure_ = failure;
  entered_.value.fetch_or(kClosed);
  entered_.wake();
}

void Meeting::throw_failure(const Step& step) const {
  if (const auto failure = lost_peer(step, {})) throw Error(failure->code, failure->text);
  const std::scoped_lock lock(mutex_);
  ENGINE_ASSERT(failure_, "{} failed without a reason", describe(step));
  throw Error(failure_->code, failure_->text);
}

std::optional<Meeting::Failure> Meeting::lost_peer(const Step& step,
                                                   const std::vector<int>& late) const {
  const auto where = [&] {
    return step.operation == Operation::none ? "" : fmt::format(" (in {})", describe(step));
  };
  if (attendance_->aborted()) {
    const auto abort = attendance_->abort_reason();
    return Failure{Errc::peer_lost,
                   fmt::format("rank {} failed: {}{}", abort->rank, abort->reason, where())};
  }
  for (const int rank : late) {
    if (attendance_->has_left(world_rank(rank))) {
      return Failure{Errc::peer_lost, fmt::format("rank {} has left{}", world_rank(rank), where())};
    }
  }
  return std::nullopt;
}

Meeting::Failure Meeting::timed_out(const Step& step, const std::vector<int>& late) const {
  std::vector<int> ranks;
  std::vector<std::string> seen;
  for (const int rank : late) {
    ranks.push_back(world_rank(rank));
    seen.push_back(last_seen(rank));
  }
  return {Errc::timeout, fmt::format("rank{} {} ha{} not entered {} for {:.1f} s (last seen in {})",
                                     late.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                                     late.size() == 1 ? "s" : "ve", describe(step), timeout_s_,
                                     fmt::join(seen, ", "))};
}

std::vector<int> Meeting::late_for(std::uint64_t sequence) const {
  std::vector<int> late;
  for (std::size_t r = 0; r < size(); ++r) {
    if (members_[r].collectives.load(std::memory_order_acquire) <= sequence) {
      late.push_back(static_cast<int>(r));
    }
  }
  return late;
}

void Meeting::compare(const Step& step, std::span<const Call> calls) {
  const auto other = std::find_if(calls.begin(), calls.end(),
                                  [&](const Call& call) { return !call.matches(calls[0]); });
  if (other == calls.end()) return;
  const Failure failure = {
      Errc::internal,
      fmt::format("group {}, collective #{}: rank {} called {}, rank {} called {}", group_.name,
                  step.sequence + 1, world_rank(0), calls[0].str(),
                  world_rank(static_cast<int>(other - calls.begin())), other->str())};
  {
    const std::scoped_lock lock(mutex_);
    close_locked(failure);
  }
  throw Error(failure.code, failure.text);
}

Meeting::Mailbox& Meeting::mailbox(int from, int to) noexcept {
  return mailboxes_[static_cast<std::size_t>(from) * size() + static_cast<std::size_t>(to)];
}

std::string Meeting::describe(const Step& step) const {
  const std::string peer =
      step.operation == Operation::send   ? fmt::format(" to rank {}", world_rank(step.peer))
      : step.operation == Operation::recv ? fmt::format(" from rank {}", world_rank(step.peer))
                                          : "";
  return fmt::format("{} #{}{} of group {}", name(step.operation), step.sequence + 1, peer,
                     group_.name);
}

std::string Meeting::last_seen(int rank) const {
  const std::uint64_t seen =
      members_[static_cast<std::size_t>(rank)].last_seen.load(std::memory_order_acquire);
  if (seen == 0) return "no call of this group";
  return fmt::format("{} #{}", name(static_cast<Operation>(seen & 0xffU)), seen >> 8);
}

}  // namespace engine::comm::detail

#include "meeting.hpp"

#include <chrono>
#include <cstring>

#include "engine/core/error.hpp"
#include "futex.hpp"

namespace engine::comm::detail {
namespace {

constexpr int kSpins = 300;  // some microseconds
constexpr int kSliceMs = 100;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Hub::abort(int rank, const std::string& reason) noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    if (aborted_.load()) return;
    reason_ = fmt::format("rank {} failed: {}", rank, reason);
  } catch (...) {  // no memory for the reason
  }
  aborted_.store(true);
}

void Hub::check() const {
  if (!aborted_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock lock(mutex_);
  ENGINE_FAIL(Errc::peer_lost, "{}", reason_.empty() ? "a rank failed" : reason_);
}

bool Call::matches(const Call& other) const noexcept {
  return std::strcmp(operation, other.operation) == 0 && dtype == other.dtype &&
         numel == other.numel && root == other.root && op == other.op;
}

std::string Call::str() const {
  std::string text = fmt::format("{} of {} {}", operation, numel, name(dtype));
  if (root >= 0) text += fmt::format(" root {}", root);
  if (op != ReduceOp::sum) text += op == ReduceOp::max ? " max" : " min";
  return text;
}

Meeting::Meeting(Hub& hub, Group group, double timeout_s)
    : hub_(hub),
      group_(std::move(group)),
      timeout_s_(timeout_s),
      slots_(group_.members.size()),
      channels_(group_.members.size() * group_.members.size()) {}

std::string Meeting::where(const Call& call, std::uint32_t number) const {
  return fmt::format("{} #{} of group {}", call.operation, number, group_.name);
}

/// Sleeps until `done()`, which a change of `word` may bring about. `late(seconds)` throws when the
/// time is up, and may throw before.
template <class Done, class Late>
void Meeting::wait(std::atomic<std::uint32_t>& word, Done&& done, Late&& late) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (done()) return;
    pause();
  }
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (;;) {
    const std::uint32_t seen = word.load(std::memory_order_acquire);
    if (done()) return;
    hub_.check();
    const std::chrono::duration<double> waited = Clock::now() - begin;
    late(waited.count());
    futex_wait(word, seen, kSliceMs);
  }
}

/// All members arrive, then all go on.
template <class Late>
void Meeting::pass(Gate& gate, Late&& late) {
  const std::uint32_t before = gate.generation.load(std::memory_order_acquire);
  const auto all = static_cast<std::uint32_t>(group_.size());
  if (gate.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
    gate.arrived.store(0, std::memory_order_relaxed);
    gate.generation.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(gate.generation);
    return;
  }
  wait(
      gate.generation, [&] { return gate.generation.load(std::memory_order_acquire) != before; },
      std::forward<Late>(late));
}

void Meeting::post(int rank, const Call& call) {
  hub_.check();
  Slot& own = slots_[static_cast<std::size_t>(rank)];
  own.call = call;
  const std::uint32_t number = own.posted.load(std::memory_order_relaxed) + 1;
  own.posted.store(number, std::memory_order_release);
  pass(posts_, [&](double waited_s) {
    std::string late;
    for (int r = 0; r < group_.size(); ++r) {
      const std::uint32_t seen = slots_[static_cast<std::size_t>(r)].posted.load();
      if (seen == number) continue;
      ENGINE_CHECK(!hub_.has_left(world_rank(r)), Errc::peer_lost, "rank {} has left, {} waits",
                   world_rank(r), where(call, number));
      late += fmt::format("{}rank {} (at call #{})", late.empty() ? "" : ", ", world_rank(r), seen);
    }
    ENGINE_CHECK(waited_s < timeout_s_, Errc::timeout,
                 "waited {:.1f} s in {} for {}: it is stuck, stopped or calls something else",
                 waited_s, where(call, number), late);
  });
  for (int r = 1; r < group_.size(); ++r) {
    const Call& first = slots_[0].call;
    const Call& other = slots_[static_cast<std::size_t>(r)].call;
    ENGINE_CHECK(first.matches(other), Errc::internal,
                 "ranks differ in call #{} of group {}: rank {} calls {}, rank {} calls {}", number,
                 group_.name, world_rank(0), first.str(), world_rank(r), other.str());
  }
}

void Meeting::finish(int rank) {
  Slot& own = slots_[static_cast<std::size_t>(rank)];
  const std::uint32_t number = own.posted.load(std::memory_order_relaxed);
  own.finished.store(number, std::memory_order_relaxed);
  pass(finishes_, [&](double waited_s) {
    if (waited_s < timeout_s_) return;
    std::string late;
    for (int r = 0; r < group_.size(); ++r) {
      if (slots_[static_cast<std::size_t>(r)].finished.load() != number) {
        late += fmt::format("{}rank {}", late.empty() ? "" : ", ", world_rank(r));
      }
    }
    ENGINE_FAIL(Errc::timeout, "waited {:.1f} s for {} to finish {}", waited_s, late,
                where(own.call, number));
  });
}

void Meeting::send(int from, int to, const Call& call) {
  Channel& c = channel(from, to);
  const std::uint32_t number = ++c.count;
  c.call = call;
  c.state.store(Channel::posted, std::memory_order_release);
  futex_wake_all(c.state);
  wait(
      c.state, [&] { return c.state.load(std::memory_order_acquire) >= Channel::taken; },
      [&](double waited_s) {
        ENGINE_CHECK(!hub_.has_left(world_rank(to)), Errc::peer_lost, "rank {} has left, {} waits",
                     world_rank(to), where(call, number));
        ENGINE_CHECK(waited_s < timeout_s_, Errc::timeout,
                     "waited {:.1f} s in {} for rank {} to receive", waited_s, where(call, number),
                     world_rank(to));
      });
  const bool refused = c.state.load(std::memory_order_relaxed) == Channel::refused;
  c.state.store(Channel::empty, std::memory_order_release);
  ENGINE_CHECK(!refused, Errc::internal, "{}: rank {} receives something else than {} {}",
               where(call, number), world_rank(to), call.numel, name(call.dtype));
}

void Meeting::recv(int from, int to, const Call& call) {
  Channel& c = channel(from, to);
  wait(
      c.state, [&] { return c.state.load(std::memory_order_acquire) == Channel::posted; },
      [&](double waited_s) {
        ENGINE_CHECK(!hub_.has_left(world_rank(from)), Errc::peer_lost,
                     "rank {} has left, a recv of group {} waits", world_rank(from), group_.name);
        ENGINE_CHECK(waited_s < timeout_s_, Errc::timeout,
                     "waited {:.1f} s in recv of group {} for rank {} to send", waited_s,
                     group_.name, world_rank(from));
      });
  const Call sent = c.call;
  const std::uint32_t number = c.count;
  const bool fits = sent.numel == call.numel && sent.dtype == call.dtype;
  if (fits && sent.input != nullptr && call.output != nullptr) {
    std::memcpy(call.output, sent.input,
                static_cast<std::size_t>(call.numel) * size_of(call.dtype));
  }
  c.state.store(fits ? Channel::taken : Channel::refused, std::memory_order_release);
  futex_wake_all(c.state);
  ENGINE_CHECK(fits, Errc::internal,
               "recv #{} of group {} from rank {}: expected {} {}, it sends {} {}", number,
               group_.name, world_rank(from), call.numel, name(call.dtype), sent.numel,
               name(sent.dtype));
}

}  // namespace engine::comm::detail

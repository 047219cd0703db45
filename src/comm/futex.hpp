#pragma once
// Waiting of threads for each other, with a way to give up: std::atomic::wait has no timeout.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace engine::comm::detail {

using Clock = std::chrono::steady_clock;

/// A word that threads wait on. Waiters look once more for what else may have happened after every
/// kSlice; ranks may outnumber the cores, so they spin for microseconds only and then sleep.
class WaitWord {
 public:
  static constexpr std::chrono::microseconds kSpin{8};
  static constexpr std::chrono::milliseconds kSlice{50};

  std::atomic<std::uint32_t> value{0};

  /// Returns when `ready(value)`, or when `give_up()`, asked after every slice, says so.
  template <class Ready, class GiveUp>
  void wait(const Ready& ready, const GiveUp& give_up) {
    const Clock::time_point spin_end = Clock::now() + kSpin;
    do {
      if (ready(value.load(std::memory_order_acquire))) return;
      pause();
    } while (Clock::now() < spin_end);
    for (Clock::time_point slice_end = Clock::now() + kSlice;;) {
      const std::uint32_t seen = value.load(std::memory_order_acquire);
      if (ready(seen)) return;
      const Clock::time_point now = Clock::now();
      if (now >= slice_end) {
        if (give_up()) return;
        slice_end = Clock::now() + kSlice;
        continue;
      }
      sleep(seen, slice_end - now);
    }
  }

  /// Call after changing the value.
  void wake() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }

 private:
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void sleep(std::uint32_t seen, Clock::duration limit) noexcept {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
    const timespec timeout = {.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                              .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    futex(FUTEX_WAIT_PRIVATE, seen, &timeout);  // returns at once if the value is another by now
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  void futex(int operation, std::uint32_t argument, const timespec* timeout) noexcept {
    static_assert(sizeof(value) == sizeof(std::uint32_t));
    syscall(SYS_futex, &value, operation, argument, timeout, nullptr, 0);
  }

  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace engine::comm::detail

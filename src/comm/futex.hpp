#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace engine::comm::detail {

/// Sleeps while `word` is `old`, at most `milliseconds`. May return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t old, int milliseconds) {
  const timespec limit = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, &limit, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace engine::comm::detail

#pragma once
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace engine::comm::detail {

/// Which ranks of this process are still there; shared by all of them.
class Attendance {
 public:
  struct Abort {
    int rank = 0;
    std::string reason;
  };

  explicit Attendance(int size) : left_(static_cast<std::size_t>(size)) {}

  /// The first call is the one that is told.
  void abort(int rank, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (!abort_) abort_ = Abort{rank, reason};
    aborted_.store(true, std::memory_order_release);
  }
  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  std::optional<Abort> abort_reason() const {
    const std::scoped_lock lock(mutex_);
    return abort_;
  }

  void leave(int rank) noexcept {
    left_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
  }
  bool has_left(int rank) const noexcept {
    return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Abort> abort_;
  std::atomic<bool> aborted_{false};
  std::vector<std::atomic<bool>> left_;
};

}  // namespace engine::comm::detail

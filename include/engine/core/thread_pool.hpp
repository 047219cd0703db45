#pragma once
#include <cstdint>
#include <memory>

#include "engine/core/function_ref.hpp"

namespace engine {

/// A rank's compute threads. Work is cut by shape by the caller, never by the thread count, and
/// each task is deterministic, so results do not depend on the number of threads.
class ThreadPool {
 public:
  /// Starts `threads - 1` workers; the thread that calls `parallel_for` is the remaining one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return threads_; }

  /// Runs `task(i)` for every i in [0, count) and returns when all are done. Tasks are handed out
  /// in order, one at a time. Only one thread may call this at a time, and tasks must not call it.
  /// Throws the first exception a task threw, after all tasks have ended.
  /// Async: idle workers spin for some microseconds, then sleep.
  void parallel_for(std::int64_t count, FunctionRef<void(std::int64_t)> task);

 private:
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

/// Number of CPUs this process may run on.
int available_cpus() noexcept;

}  // namespace engine

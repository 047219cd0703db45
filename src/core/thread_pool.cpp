#include "engine/core/thread_pool.hpp"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/core/error.hpp"

namespace engine {
namespace {

constexpr int kSpins = 2000;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// oneDNN brings OpenMP along: inside our threads it must never start threads of its own.
void keep_libraries_single_threaded() { omp_set_num_threads(1); }

}  // namespace

// A job is the word {generation, next index}. A worker claims a task by compare-and-swap on the
// word, so a worker that wakes late cannot touch a job that is over, and the caller waits for the
// tasks, not for the workers: a descheduled worker that claimed nothing holds nobody up.
struct ThreadPool::State {
  static constexpr std::uint64_t kClosed = 0xffffffffU;

  std::atomic<std::uint64_t> word{kClosed};
  std::atomic<std::int64_t> count{0};
  std::atomic<const FunctionRef<void(std::int64_t)>*> task{nullptr};
  std::atomic<std::uint32_t> completed{0};
  std::atomic<std::uint32_t> generation{0};  // what idle workers sleep on
  std::atomic<bool> stop{false};
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void work() {
    std::uint64_t seen = word.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<std::int64_t>(seen & 0xffffffffU);
      const std::int64_t total = count.load(std::memory_order_acquire);
      if (index >= total) return;
      if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
      run(index);
      if (completed.fetch_add(1, std::memory_order_acq_rel) + 1 == total) completed.notify_one();
      seen = word.load(std::memory_order_acquire);
    }
  }

  void run(std::int64_t index) {
    try {
      (*task.load(std::memory_order_relaxed))(index);
    } catch (...) {
      const std::scoped_lock lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }

  void publish(std::int64_t total, const FunctionRef<void(std::int64_t)>& job) {
    const std::uint32_t next = generation.load(std::memory_order_relaxed) + 1;
    const std::uint64_t high = static_cast<std::uint64_t>(next) << 32;
    word.store(high | kClosed, std::memory_order_relaxed);  // no claim while the job changes
    count.store(total, std::memory_order_release);
    task.store(&job, std::memory_order_relaxed);
    completed.store(0, std::memory_order_relaxed);
    word.store(high, std::memory_order_release);
    generation.store(next, std::memory_order_release);
    generation.notify_all();
  }

  static void wait_until_changes(std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
    value.wait(old, std::memory_order_acquire);
  }

  void join() {
    stop.store(true, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }

  void run_worker() {
    keep_libraries_single_threaded();
    for (std::uint32_t seen = 0;;) {
      wait_until_changes(generation, seen);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      work();
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  ENGINE_CHECK(threads >= 1 && threads <= 4096, Errc::invalid_argument,
               "thread count: expected 1 to 4096, got {}", threads);
  keep_libraries_single_threaded();
  state_->workers.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) {
      state_->workers.emplace_back([state = state_.get()] { state->run_worker(); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = state_->workers.size();
    state_->join();
    ENGINE_FAIL(Errc::invalid_argument,
                "cannot start {} threads, the system allows {}: {}: lower train.threads", threads,
                started, error.what());
  }
}

ThreadPool::~ThreadPool() { state_->join(); }

void ThreadPool::parallel_for(std::int64_t count, FunctionRef<void(std::int64_t)> task) {
  if (count <= 0) return;
  ENGINE_ASSERT(count < static_cast<std::int64_t>(State::kClosed), "{} tasks", count);
  if (threads_ == 1 || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  State& s = *state_;
  s.publish(count, task);
  s.work();
  const auto all = static_cast<std::uint32_t>(count);
  for (std::uint32_t done = s.completed.load(std::memory_order_acquire); done != all;
       done = s.completed.load(std::memory_order_acquire)) {
    State::wait_until_changes(s.completed, done);
  }
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

int available_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace engine
